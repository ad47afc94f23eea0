"""Model providers: where they are, their keys, and what is known of their models."""

import ipaddress
import os
import re
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from onward.config.numbers import Count, DollarsOrNone, Seconds
from onward.config.places import shipped
from onward.config.trusted import read_shipped, read_trusted
from onward.errors import BadConfiguration, OnwardError, Unreadable

PROVIDER_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
KINDS = ("anthropic", "openai")
BASE_URL_ENV = {"anthropic": "ANTHROPIC_BASE_URL", "openai": "OPENAI_BASE_URL"}
KEY_REMEDY = (
    "a key does not belong into this file: put it into a file that only you can read and name that in api_key_file, or "
    "name its environment variable in api_key_env"
)

OrNone = BeforeValidator(lambda value: None if value in ("", 0) else value)


class NoKey(OnwardError):
    """A provider cannot be used, because its key is not there."""

    code = "no-key"
    http_status = 422


class ProviderSettings(BaseModel):
    """`[providers.NAME]`. `""` and 0 mean that nothing is said."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Annotated[Literal[KINDS] | None, OrNone] = None  # type: ignore[valid-type]  # one list for all
    """Whose API it speaks. None: the name says it."""
    model: Annotated[str | None, OrNone] = None
    """The model of an agent that names none. None: the one Onward is shipped with."""
    base_url: Annotated[str | None, OrNone] = None
    """Where it is. None: where the provider's SDK finds it, which obeys ANTHROPIC_BASE_URL and OPENAI_BASE_URL."""
    allow_http: bool = False
    """Send keys and conversations unencrypted to another machine."""
    api_key_env: Annotated[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None, OrNone] = None
    """The environment variable that holds the key."""
    api_key_file: Annotated[Path | None, OrNone] = None
    """The file that holds the key; goes before the variable."""
    concurrency: Annotated[int, Field(ge=1, le=10_000)] = 16
    """How many requests are out at the same time."""
    connect_s: Seconds = 10.0
    """How many seconds a connection may take."""
    inactivity_s: Seconds = 300.0
    """How many seconds a request may be silent; how long an answer takes in all is not limited."""
    max_output_tokens: Annotated[Count | None, OrNone] = None
    """The longest answer. None: as the model allows, for Anthropic's at most 32,768."""
    window_tokens: Annotated[Count | None, OrNone] = None
    """The context window of its models. None: as Onward knows it."""

    @field_validator("base_url")
    @classmethod
    def _is_url(cls, value: str | None) -> str | None:
        parts = urlsplit(value or "https://x")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("must be an http:// or https:// URL")
        if parts.username or parts.password or parts.query:
            raise ValueError("must not hold credentials or a query")
        return value

    @field_validator("api_key_file")
    @classmethod
    def _is_absolute(cls, value: Path | None) -> Path | None:
        value = value.expanduser() if value else None
        if value and not value.is_absolute():
            raise ValueError("must be an absolute path")
        return value


class PriceSettings(BaseModel):
    """`[prices."PROVIDER/MODEL"]`: US dollars for a million tokens, and the model's sizes where they are known."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: DollarsOrNone
    """A million tokens of the prompt."""
    output: DollarsOrNone
    """A million tokens of the answer."""
    cache_read: DollarsOrNone | None = None
    """A million tokens read from the cache. None: as input."""
    cache_write: DollarsOrNone | None = None
    """A million tokens written to the cache. None: as input."""
    long_from: Count | None = None
    """From how many tokens on a prompt is a long one."""
    long_input: DollarsOrNone = 1.0
    """How many times as much a long prompt costs."""
    long_output: DollarsOrNone = 1.0
    """How many times as much the answer to a long prompt costs."""
    window_tokens: Count | None = None
    """The context window."""
    max_output_tokens: Count | None = None
    """The longest answer."""


BUILT_IN: Mapping[str, ProviderSettings] = {
    "anthropic": ProviderSettings(kind="anthropic", api_key_env="ANTHROPIC_API_KEY"),
    "openai": ProviderSettings(kind="openai", api_key_env="OPENAI_API_KEY"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """A provider that can be used now. `base_url` None: the SDK's own; `key` None: it needs none."""

    name: str
    kind: str
    settings: ProviderSettings
    base_url: str | None
    key: str | None = field(repr=False)


def resolve_provider(name: str, settings: ProviderSettings, environ: Mapping[str, str]) -> Provider:
    """Return a provider with its key. Reads the key's file; call it in a thread.

    Raises:
        NoKey: The key is not there.
        BadConfiguration: The key's file or the URL is refused; the message names the remedy.
    """
    kind = kind_of(name, settings)
    url = settings.base_url or environ.get(BASE_URL_ENV[kind]) or None
    _check_url(name, url, settings)
    key = _read_key(name, settings, environ)
    if key is None and _needs_key(settings, url):
        source = f"set {settings.api_key_env}" if settings.api_key_env else "name it in api_key_env or api_key_file"
        unneeded = f'; if {url} needs none, say api_key_env = "" in [providers.{name}]' if url else ""
        raise NoKey(f"the provider {name!r} has no key: {source}{unneeded}")
    return Provider(name=name, kind=kind, settings=settings, base_url=url, key=key)


def kind_of(name: str, settings: ProviderSettings) -> str:
    """Return whose API a provider speaks.

    Raises:
        BadConfiguration: Neither its table nor its name says so.
    """
    kind = settings.kind or (name if name in KINDS else None)
    if kind is None:
        raise BadConfiguration(f'[providers.{name}] needs a kind: kind = "openai" for an OpenAI-compatible server')
    return str(kind)


def is_loopback(url: str | None) -> bool:
    """Whether a URL means this machine."""
    host = urlsplit(url).hostname if url else None
    try:
        return host is not None and (host == "localhost" or ipaddress.ip_address(host).is_loopback)
    except ValueError:
        return False


def is_openai(url: str | None) -> bool:
    """Whether a URL is that of OpenAI itself; None is."""
    return url is None or urlsplit(url).hostname == "api.openai.com"


def known_models() -> dict[str, PriceSettings]:
    """Return what Onward is shipped with: by `KIND/MODEL`."""
    return {name: PriceSettings.model_validate(card) for name, card in _catalogue()["models"].items()}


def default_model(kind: str, settings: ProviderSettings, url: str | None) -> str | None:
    """Return the model of an agent that names none. What another server than OpenAI's has is not known."""
    if settings.model is None and kind == "openai" and not is_openai(url):
        return None
    return settings.model or _catalogue()["defaults"].get(kind)


@cache
def _catalogue() -> dict[str, Any]:
    return tomllib.loads(read_shipped(shipped("config") / "models.toml"))


def _check_url(name: str, url: str | None, settings: ProviderSettings) -> None:
    if url is not None and urlsplit(url).scheme == "http" and not (settings.allow_http or is_loopback(url)):
        raise BadConfiguration(
            f"the provider {name!r} is at {url}, to which the key and every conversation would go unencrypted: use "
            f"https, or say allow_http = true in [providers.{name}]"
        )


def _needs_key(settings: ProviderSettings, url: str | None) -> bool:
    return url is None or bool(settings.api_key_file or settings.api_key_env)


def _read_key(name: str, settings: ProviderSettings, environ: Mapping[str, str]) -> str | None:
    credential = _credential(name, environ)
    file = settings.api_key_file or credential
    if file is None:
        return environ.get(settings.api_key_env or "", "").strip() or None
    try:
        key = read_trusted(file).strip()
        readable = os.stat(file).st_mode & (stat.S_IRGRP | stat.S_IROTH)
    except FileNotFoundError as error:
        raise NoKey(f"the provider {name!r} has no key: the file {file} is not there") from error
    except (Unreadable, OSError) as error:
        raise NoKey(f"the provider {name!r} has no key: {error}") from error
    if readable and file != credential:  # systemd guards its own by an access list, which looks like that
        raise BadConfiguration(f"{file} holds a key that others can read and is refused: chmod 600 {file}")
    if not key or not key.isprintable() or " " in key:
        raise NoKey(f"the provider {name!r} has no key: the file {file} must hold one line, the key")
    return key


def _credential(name: str, environ: Mapping[str, str]) -> Path | None:
    """Return the file of a provider's key that systemd hands over (LoadCredential=NAME-api-key), if it does."""
    directory = environ.get("CREDENTIALS_DIRECTORY")
    file = Path(directory, f"{name}-api-key") if directory else None
    return file if file is not None and file.is_file() else None
