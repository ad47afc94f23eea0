"""`[mcp.NAME]` of an agent definition: which MCP servers a run may use, and with what."""

import re
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, field_validator, model_validator

from onward.core.vocabulary import Effect

ServerName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,23}$")]

_Argument = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$")]
_Pattern = Annotated[str, StringConstraints(min_length=1, max_length=200)]
_Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_SCHEMES = ("Bearer", "Basic", "Token")
_OUR_HEADERS = {"host", "accept", "content-type", "content-length", "connection", "transfer-encoding", "cookie"}
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class McpServer(BaseModel):
    """One MCP server. Secrets stand here by the names of the daemon's environment variables only."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    command: Annotated[tuple[_Argument, ...], BeforeValidator(_as_list)] = ()
    """The program and its arguments, found on PATH; it speaks MCP over stdin and stdout."""
    args: tuple[_Argument, ...] = ()
    """More arguments, after those of `command`. Every local user can see them: no secrets here."""
    url: str | None = None
    """The streamable HTTP endpoint, instead of a command."""
    env_from: tuple[str, ...] = ()
    """Environment variables of the daemon that the command gets, besides PATH, HOME, the locale and the like."""
    headers_from: dict[str, str] = Field(default_factory=dict)
    """By header, the environment variable that holds its value: `Authorization = "Bearer GITHUB_TOKEN"`."""
    tools: tuple[_Pattern, ...] = ("*",)
    """Which of its tools may be used: patterns with `*` and `?` for the server's own names."""
    effects: dict[_Pattern, Effect] = Field(default_factory=dict)
    """What its tools do, by pattern: read, idempotent, write or unknown. The server's own word does not count."""
    timeout_s: _Seconds = 120.0
    """Seconds for one call."""
    start_timeout_s: _Seconds = 30.0
    """Seconds until it has started and listed its tools."""
    restarts: Annotated[int, Field(ge=0, le=1000)] = 5
    """How often in a row it is started anew without having answered a call in between."""

    @field_validator("command")
    @classmethod
    def _is_a_program(cls, command: tuple[str, ...]) -> tuple[str, ...]:
        if command and not command[0].strip():
            raise ValueError("the first word is the program to start")
        return command

    @field_validator("url")
    @classmethod
    def _is_an_endpoint(cls, url: str | None) -> str | None:
        if url is None:
            return None
        try:
            parts = urlsplit(url)
        except ValueError as error:
            raise ValueError(f"no URL: {error}") from error
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("an endpoint begins with https:// or http:// and names a host")
        return url

    @field_validator("env_from")
    @classmethod
    def _are_variables(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            _check_variable(name)
        return names

    @field_validator("headers_from")
    @classmethod
    def _are_headers(cls, headers: dict[str, str]) -> dict[str, str]:
        for header, given in headers.items():
            if not _HEADER.fullmatch(header) or header.lower() in _OUR_HEADERS or header.lower().startswith("mcp-"):
                raise ValueError(f"{header!r} is no header that can be set here")
            scheme, _, name = given.rpartition(" ")
            if scheme and scheme not in _SCHEMES:
                raise ValueError(f"before the name of a variable only {', '.join(_SCHEMES)} may stand")
            _check_variable(name)
        return headers

    @model_validator(mode="after")
    def _is_one_of_two(self) -> "McpServer":
        if bool(self.command) == bool(self.url):
            raise ValueError("give either command = [...] or url = '...'")
        if "@" in urlsplit(self.url or "").netloc:  # looked at here, where a problem does not show the value
            raise ValueError("a url holds no user or password; headers_from names the variable that does")
        if self.url and (self.args or self.env_from):
            raise ValueError("args and env_from belong to a command; for a url there is headers_from")
        if self.command and self.headers_from:
            raise ValueError("headers_from belongs to a url; for a command there is env_from")
        if self.url and self.headers_from and self.url.startswith("http:") and not _is_loopback(self.url):
            raise ValueError("a secret goes over https:// only, but to this machine")
        return self


def _check_variable(name: str) -> None:
    if not _VARIABLE.fullmatch(name):
        # Not shown: somebody who puts the secret itself here should not find it in a log.
        raise ValueError("give the name of an environment variable, not its value")
    if name.startswith("ONWARD_"):
        raise ValueError(f"{name} is Onward's own and is given to no server")


def _is_loopback(url: str) -> bool:
    return urlsplit(url).hostname in _LOOPBACK
