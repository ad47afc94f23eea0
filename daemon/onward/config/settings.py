"""The daemon's settings: flag > environment (`ONWARD_SECTION__KEY`) > user's file > system's file > default."""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from onward.config.agents import NAME
from onward.config.documents import Problem, line_of, nearest, parse, problems_of, said
from onward.config.notify import NotifySettings
from onward.config.numbers import SecondsOrNone
from onward.config.places import Places, check_socket
from onward.config.providers import BUILT_IN, KEY_REMEDY, PROVIDER_NAME, PriceSettings, ProviderSettings, kind_of
from onward.config.trusted import read_trusted
from onward.errors import BadConfiguration, Unreadable

PREFIX = "ONWARD_"

Layer = dict[str, Any]


def _absolute(path: Path) -> Path:
    path = path.expanduser()
    if not path.is_absolute():
        raise ValueError("must be an absolute path")
    return path


# Empty means the usual place, because TOML has no word for "nothing".
UsualOr = Annotated[
    Annotated[Path, AfterValidator(_absolute)] | None, BeforeValidator(lambda value: None if value == "" else value)
]


class DaemonSettings(BaseModel):
    """`[daemon]`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    runs_dir: UsualOr = None
    """Where the runs are. None: the usual place."""
    socket: UsualOr = None
    """The Unix socket of the API. None: the usual place."""
    max_active_runs: Annotated[int, Field(ge=1, le=10_000)] = 50
    """How many runs work at the same time; others wait in line."""
    entry_rate: Annotated[float, Field(ge=0.001, le=10_000, allow_inf_nan=False)] = 20.0
    """How many runs a second are entered when the daemon comes back."""
    orphan_grace_s: SecondsOrNone = 600.0
    """How many seconds a command goes on alone while no daemon runs, before it is ended."""
    call_memory_mib: Annotated[int, Field(ge=0, le=1 << 30)] = 0
    """MiB of memory that a command may use, 0: no limit. All its processes together in a unit with
    `DelegateSubgroup=daemon`, else each of them."""
    call_tasks: Annotated[int, Field(ge=0, le=1 << 22)] = 0
    """How many processes and threads a command may have, 0: no limit. Only in a unit with `DelegateSubgroup=daemon`."""
    lock_wait_s: SecondsOrNone = 3.0
    """How many seconds a daemon waits for another one to let go of the runs."""
    allow_network_fs: bool = False
    """Accept a runs directory on a network or FUSE file system, where locks and flushes may not hold."""
    default_agent: Annotated[str, Field(pattern=NAME)] = "worker"
    """The agent of `onward run` without `-a`."""


class LogSettings(BaseModel):
    """`[log]`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least severe entry that is written."""
    format: Literal["auto", "json", "console"] = "auto"
    """auto: console on a terminal, else JSON lines."""


class MetricsSettings(BaseModel):
    """`[metrics]`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    textfile: UsualOr = None
    """A file that is replaced every 15 seconds with what `/metrics` says, for a collector of text files. None: none."""


class Settings(BaseSettings):
    """All settings. Take them from `load_settings`: made directly, they know neither files nor environment."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid", env_prefix=PREFIX, env_nested_delimiter="__")

    daemon: DaemonSettings = DaemonSettings()
    log: LogSettings = LogSettings()
    metrics: MetricsSettings = MetricsSettings()
    notify: NotifySettings = NotifySettings()
    """How a question reaches a person who is not looking."""
    providers: dict[str, ProviderSettings] = dict(BUILT_IN)
    """By the name that models are named with: `NAME/MODEL`."""
    prices: dict[str, PriceSettings] = {}
    """By `PROVIDER/MODEL`; they go before what Onward is shipped with."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        # `load_settings` checks each layer apart, so that a complaint can name the file and the line.
        return (init_settings,)

    def apply(self, places: Places) -> Places:
        """Return the places of the instance with what these settings say.

        Raises:
            BadConfiguration: The socket path is too long.
        """
        changed = places.override(runs_dir=self.daemon.runs_dir, socket=self.daemon.socket)
        check_socket(changed.socket)
        return changed


def load_settings(places: Places, flags: Mapping[str, object] | None = None) -> Settings:
    """Return the settings of an instance.

    Args:
        places: Where its `onward.toml` files are; a missing one says nothing.
        flags: Dotted keys (`"daemon.runs_dir"`) from the command line; a value of None was not given.

    Raises:
        BadConfiguration: Something in a file, the environment or a flag is wrong; the message names all of it.
    """
    problems: list[str] = []
    layers: list[Layer] = [{"providers": {name: known.model_dump() for name, known in BUILT_IN.items()}}]
    layers += [_file_layer(file, problems) for file in reversed(places.settings_files)]
    layers += [_environment_layer(problems), _flag_layer(flags or {}, problems)]
    if problems:
        raise BadConfiguration("\n".join(problems))
    settings = Settings.model_validate({name: _merged(layers, name) for name in Settings.model_fields})
    for name, provider in settings.providers.items():
        kind_of(name, provider)
    return settings


# Sections whose tables a person names: [providers.NAME], [prices."PROVIDER/MODEL"].
NAMED: Mapping[str, type[BaseModel]] = {"providers": ProviderSettings, "prices": PriceSettings}


def setting_names() -> dict[str, tuple[str, ...]]:
    """Return the names of all settings, by section; for a section of named tables those of one table."""
    return {section: tuple(_section_model(section).model_fields) for section in Settings.model_fields}


def _section_model(section: str) -> type[BaseModel]:
    return NAMED.get(section) or cast("type[BaseModel]", Settings.model_fields[section].annotation)


def _merged(layers: list[Layer], section: str) -> Layer:
    merged: Layer = {}
    for layer in layers:
        for key, value in layer.get(section, {}).items():
            merged[key] = {**merged.get(key, {}), **value} if section in NAMED else value
    return merged


def _file_layer(file: Path, problems: list[str]) -> Layer:
    try:
        text = read_trusted(file)
    except FileNotFoundError:
        return {}
    except (BadConfiguration, Unreadable) as error:
        problems.append(str(error))
        return {}
    layer = parse(file, text)
    found = [layer] if isinstance(layer, Problem) else _file_problems(file, text, layer)
    problems.extend(map(str, found))
    return {} if isinstance(layer, Problem) else layer


def _file_problems(file: Path, text: str, layer: Layer) -> list[Problem]:
    unknown = [
        Problem(file=file, line=line_of(text, keys), what=f"unknown {kind} {keys[-1]!r}", remedy=remedy)
        for keys, kind, remedy in _unknown(layer)
    ]
    if unknown:
        return unknown
    try:
        Settings.model_validate(layer)
    except ValidationError as error:
        return problems_of(error, file, text)
    return []


def _unknown(layer: Layer) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """The keys of a layer that are no settings: (path, "section" or "key", remedy)."""
    known = setting_names()
    for section, values in layer.items():
        if section not in known:
            yield (section,), "section" if isinstance(values, dict) else "key", nearest(section, known)
            continue
        tables = values if isinstance(values, dict) else {}
        for path, keys in _named_tables(section, tables) if section in NAMED else [((section,), tables)]:
            for key in keys:
                if key not in known[section]:
                    yield (*path, key), "key", _remedy(key, section, known)
    for name in layer["providers"] if isinstance(layer.get("providers"), dict) else ():
        if not PROVIDER_NAME.fullmatch(name):
            yield ("providers", name), "provider", "a name is 1 to 32 of a-z, 0-9 and '-', not starting with '-'"


def _named_tables(section: str, tables: Layer) -> Iterator[tuple[tuple[str, ...], Layer]]:
    for name, table in tables.items():
        yield (section, name), table if isinstance(table, dict) else {}


def _remedy(key: str, section: str, known: Mapping[str, tuple[str, ...]]) -> str:
    if section == "providers" and key in ("api_key", "key", "token", "apikey", "auth_token"):
        return KEY_REMEDY
    elsewhere = [f"[{other}] {key}" for other, keys in known.items() if key in keys and other not in NAMED]
    return f"did you mean {elsewhere[0]}?" if elsewhere else nearest(key, known[section])


def _environment_layer(problems: list[str]) -> Layer:
    known = {
        f"{PREFIX}{section}__{key}".upper()
        for section, keys in setting_names().items()
        if section not in NAMED
        for key in keys
    }
    known |= {name for name in os.environ if _is_provider_setting(name)}
    # One underscore where two belong is the likely slip; any other ONWARD_ variable without "__" is not a setting.
    slips = {name.replace("__", "_") for name in known}
    names = [name for name in os.environ if name.startswith(PREFIX) and name not in known]
    unknown = [name for name in names if "__" in name or name in slips]
    problems.extend(f"{name}: no such setting; {nearest(name, known)}" for name in unknown)
    if unknown:
        return {}
    layer: Layer = EnvSettingsSource(Settings)()
    _check(layer, problems, lambda keys: f"{PREFIX}{'__'.join(keys)}".upper())
    if socket := os.environ.get("ONWARD_SOCKET"):
        # What clients go by goes before files, or daemon and client would miss each other.
        layer = {**layer, "daemon": {"socket": os.path.abspath(socket), **layer.get("daemon", {})}}
    return layer


def _is_provider_setting(variable: str) -> bool:
    """Whether a variable is `ONWARD_PROVIDERS__NAME__KEY`. Prices cannot be set so: their names have a slash."""
    section, _, rest = variable.removeprefix(PREFIX).partition("__")
    name, _, key = rest.partition("__")
    return section == "PROVIDERS" and bool(name) and key.lower() in ProviderSettings.model_fields


def _flag_layer(flags: Mapping[str, object], problems: list[str]) -> Layer:
    layer: Layer = {}
    for name, value in flags.items():
        section, _, key = name.partition(".")
        if value is not None:
            layer.setdefault(section, {})[key] = value
    _check(layer, problems, lambda keys: f"--{keys[-1].replace('_', '-')}")
    return layer


def _check(layer: Layer, problems: list[str], name: Callable[[tuple[str, ...]], str]) -> None:
    try:
        Settings.model_validate(layer)
    except ValidationError as error:
        problems.extend(f"{name(tuple(map(str, item['loc'])))}: {said(item)}" for item in error.errors())
