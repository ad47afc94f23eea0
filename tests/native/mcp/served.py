"""A server built with the SDK: over stdio, or with a port over HTTP on loopback."""

import sys
from typing import Any

import anyio
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult, PaginatedRequestParams

from tests.native.mcp import acts


async def list_tools(context: ServerRequestContext[Any], params: PaginatedRequestParams | None) -> ListToolsResult:
    return ListToolsResult.model_validate({"tools": acts.tools()})


async def call_tool(context: ServerRequestContext[Any], params: CallToolRequestParams) -> CallToolResult:
    result = acts.act(params.name, params.arguments or {})
    if result is None:
        await anyio.sleep_forever()
    return CallToolResult.model_validate(result)


async def serve_stdio(server: Server[Any]) -> None:
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


def serve_http(server: Server[Any], port: int) -> None:
    import uvicorn

    uvicorn.run(server.streamable_http_app(), host="127.0.0.1", port=port, log_level="critical")


def main() -> None:
    acts.started()
    server: Server[Any] = Server("served", on_list_tools=list_tools, on_call_tool=call_tool)
    if len(sys.argv) > 2:
        serve_http(server, int(sys.argv[2]))
    else:
        anyio.run(serve_stdio, server)
        acts.left_alone()
