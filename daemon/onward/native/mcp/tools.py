"""The tools of a run's MCP servers, for as long as the run is worked on."""

import importlib
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import structlog
from anyio import to_thread

from onward.core.vocabulary import Needs
from onward.native.mcp.listing import offer
from onward.native.mcp.place import Place, Unavailable
from onward.native.mcp.settings import servers_of
from onward.ports.tool import Tool, ToolContext, ToolResult, ToolSpec

if TYPE_CHECKING:
    from onward.native.mcp.server import Server

CLOSE_S = 8.0
"""Seconds in which servers may come to their end by themselves when the run is let go."""

log = structlog.get_logger()


class McpTool:
    """One tool of a server; implements `onward.ports.tool.Tool`."""

    def __init__(self, server: "Server", name: str, spec: ToolSpec) -> None:
        self._server = server
        self._name = name
        self.spec = spec

    async def call(self, context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
        """Call it; cancelling tells the server so and leaves unknown whether the call took effect."""
        return await self._server.call(self._name, arguments, context.deadline_s)


@asynccontextmanager
async def mcp_tools(agent: Mapping[str, Any], place: Place) -> AsyncGenerator[dict[str, Tool]]:
    """Start the servers that a pinned agent definition names and give their tools; at the end they are closed.

    The tools stay the same until then, whatever becomes of the servers: one that is gone is an error result.

    Raises:
        Unavailable: A server cannot be used now. Everything that was started is ended again.
    """
    named = servers_of(agent)
    if not named:
        yield {}
        return
    make = await to_thread.run_sync(_import_server)
    servers = [make(settings, place) for settings in named]
    failure: Unavailable | None = None
    async with anyio.create_task_group() as owners:
        for server in servers:
            owners.start_soon(server.own)
        try:
            tools = await _offered(servers)
            if isinstance(tools, Unavailable):
                failure = tools
            else:
                yield tools
        finally:
            await _close(servers, owners)
    if failure is not None:
        raise failure


async def _offered(servers: "list[Server]") -> dict[str, Tool] | Unavailable:
    tools: dict[str, Tool] = {}
    for server in servers:
        try:
            listed = await server.tools()
        except Unavailable as error:
            return error
        offered = offer(server.settings, listed)
        if offered.left_out:
            log.warning("mcp tools left out", server=server.settings.name, tools=str(offered.left_out))
        tools |= {spec.name: McpTool(server, name, spec) for name, spec in offered.specs.items()}
    return tools


async def _close(servers: "list[Server]", owners: anyio.abc.TaskGroup) -> None:
    for server in servers:
        server.close()
    with anyio.move_on_after(CLOSE_S, shield=True):
        for server in servers:
            await server.ended()
    owners.cancel_scope.cancel()


def _import_server() -> "type[Server]":
    try:
        module = importlib.import_module("onward.native.mcp.server")
    except ImportError as error:
        remedy = "install it for the daemon (pip install 'mcp>=2.3') and restart that"
        raise Unavailable(
            Needs.PROVIDER, f"the agent names MCP servers, but the MCP SDK is missing ({error}); {remedy}"
        ) from error
    server: type[Server] = module.Server
    return server
