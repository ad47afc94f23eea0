"""What an agent definition says about one MCP server, as a run's journal has pinned it."""

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from onward.core.vocabulary import Effect


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """One `[mcp.NAME]`: a command that speaks over stdin and stdout, or the URL of a streamable HTTP endpoint.

    Attributes:
        name: The NAME.
        argv: The command with its arguments; empty where `url` is given.
        url: The endpoint, None for a command.
        env_from: Environment variables of the daemon that the command gets.
        headers_from: By header, the variable that holds its value, after a scheme where there is one ("Bearer NAME").
        tools: Patterns of the tools that may be used, by the server's own names.
        effects: By pattern, what a tool can do to the world; the first that matches counts.
        timeout_s: Seconds for one call.
        start_timeout_s: Seconds until it has listed its tools.
        restarts: How often in a row it is started anew without having answered a call.
    """

    name: str
    argv: tuple[str, ...] = ()
    url: str | None = None
    env_from: tuple[str, ...] = ()
    headers_from: Mapping[str, str]
    tools: tuple[str, ...] = ("*",)
    effects: Mapping[str, str]
    timeout_s: float = 120.0
    start_timeout_s: float = 30.0
    restarts: int = 5

    def allows(self, tool: str) -> bool:
        """Whether the definition lets the run use a tool of that name."""
        return any(fnmatchcase(tool, pattern) for pattern in self.tools)

    def effect_of(self, tool: str) -> Effect:
        """Return what the definition says a tool does; what the server itself says counts for nothing."""
        for pattern, effect in self.effects.items():
            if fnmatchcase(tool, pattern):
                return Effect(effect)
        return Effect.UNKNOWN


def servers_of(agent: Mapping[str, Any]) -> list[ServerSettings]:
    """Return the servers that a pinned definition names, in the order of their names."""
    return [_server(name, table) for name, table in sorted(agent.get("mcp", {}).items())]


def _server(name: str, table: Mapping[str, Any]) -> ServerSettings:
    return ServerSettings(
        name=name,
        argv=(*table.get("command", ()), *table.get("args", ())),
        url=table.get("url"),
        env_from=tuple(table.get("env_from", ())),
        headers_from=dict(table.get("headers_from", {})),
        tools=tuple(table.get("tools", ("*",))),
        effects=dict(table.get("effects", {})),
        **{key: table[key] for key in ("timeout_s", "start_timeout_s", "restarts") if key in table},
    )
