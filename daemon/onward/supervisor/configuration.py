"""The settings of a running daemon: read again when asked or when a file was saved; a bad save changes nothing."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Protocol

import anyio
import structlog
from pydantic import BaseModel

from onward.config.agents import load_agents
from onward.config.places import Places
from onward.config.settings import Settings, load_settings
from onward.core.records import Json
from onward.core.text import clean
from onward.core.times import stamp
from onward.errors import BadConfiguration

log = structlog.get_logger()

LIVE = frozenset({"daemon.max_active_runs", "daemon.default_agent", "log.level", "providers", "prices"})
"""The settings that a running daemon takes; others wait for its next start. Agents are read whenever a run starts."""

Seen = frozenset[tuple[str, int, int, int, int]]


class Configuration(Protocol):
    """What the daemon's settings are read from."""

    async def reload(self) -> None:
        """Read the configuration again, and use it if nothing is wrong with it."""
        ...

    def to_json(self) -> Json:
        """Return how the last reading went: `ok`, `problems`, `loaded_at`, `restart_needed`."""
        ...


class AsStarted:
    """The configuration of a daemon that reads none again."""

    async def reload(self) -> None:
        return

    def to_json(self) -> Json:
        return {"ok": True, "problems": [], "loaded_at": None, "restart_needed": []}


class ConfigurationFiles:
    """The files of an instance.

    `use` is given every good reading that changes something, `keep` every good one, in a thread.
    """

    def __init__(
        self,
        places: Places,
        settings: Settings,
        use: Callable[[Settings], None],
        keep: Callable[[Settings], None] = lambda _settings: None,
    ) -> None:
        self._places = places
        self._began_with = self._settings = settings
        self._use, self._keep = use, keep
        self._problems: list[str] = []
        self._loaded_at = datetime.now(UTC)
        self._reading = anyio.Lock()
        self._seen: Seen = frozenset()

    async def reload(self) -> None:
        await self._read_if(always=True)

    async def reload_if_changed(self) -> None:
        """Read again if a file is not what it was at the last reading."""
        await self._read_if(always=False)

    async def _read_if(self, *, always: bool) -> None:
        async with self._reading:
            try:
                seen = await anyio.to_thread.run_sync(self._look)
                if always or seen != self._seen:
                    self._seen = seen
                    await self._read_again()
            except Exception as error:  # noqa: BLE001  # the border of the configuration: whatever it holds, runs go on
                self._told(None, [f"an error in Onward while the configuration was read: {error!r}"])

    async def _read_again(self) -> None:
        settings, problems = await anyio.to_thread.run_sync(partial(_read, self._places))
        if settings is not None:
            await anyio.to_thread.run_sync(self._keep, settings)
        if settings is not None and settings != self._settings:
            self._settings = settings
            self._use(settings)
        self._told(settings, problems)

    def to_json(self) -> Json:
        return {
            "ok": not self._problems,
            "problems": self._problems,
            "loaded_at": stamp(self._loaded_at),
            "restart_needed": _waiting(self._began_with, self._settings),
        }

    @property
    def directories(self) -> list[Path]:
        """Where files are that are worth a look when they change."""
        return [each for top in self._places.config_dirs for each in (top, top / "agents")]

    def _told(self, settings: Settings | None, problems: list[str]) -> None:
        self._problems = problems
        if settings is not None:
            self._loaded_at = datetime.now(UTC)
        if problems:
            kept = "all is kept as it was" if settings is None else "the rest is used"
            log.warning("configuration is wrong", problems=problems, kept=kept)
        else:
            log.info("configuration read", restart_needed=_waiting(self._began_with, self._settings))

    def _look(self) -> Seen:
        return frozenset(_looks(self.directories))


def _read(places: Places) -> tuple[Settings | None, list[str]]:
    """Return the settings, None if they cannot be used, and what is wrong with them and with agents."""
    settings, problems = None, []
    try:
        settings = load_settings(places)
        settings.apply(places)
    except BadConfiguration as error:
        settings, problems = None, clean(str(error)).split("\n")
    _, wrong = load_agents(places.agent_dirs)
    return settings, problems + [str(problem) for problem in wrong]


def _looks(directories: list[Path]) -> Iterator[tuple[str, int, int, int, int]]:
    for directory in directories:
        for path in (directory, *sorted(directory.glob("*.toml"))):
            try:
                found = path.lstat()
            except OSError:
                continue
            size = found.st_size if path is not directory else 0
            changed = found.st_ctime_ns if path is not directory else 0
            yield str(path), found.st_ino, found.st_mode, size, changed


def _waiting(began_with: Settings, settings: Settings) -> list[str]:
    """Return the names of settings that differ from those the daemon began with and need a restart."""
    names = []
    for section in Settings.model_fields:
        old, new = getattr(began_with, section), getattr(settings, section)
        if section in LIVE or not isinstance(new, BaseModel):
            continue
        changed = (key for key in type(new).model_fields if getattr(old, key) != getattr(new, key))
        names += [f"{section}.{key}" for key in changed if f"{section}.{key}" not in LIVE]
    return names
