"""A small MCP server for the tests: `python served.py DIR [http PORT_FILE]`. What it does to the world, it does in DIR.

Told by files in DIR: `tools.json` adds tools with any name and schema; `mute` makes it silent when it starts.
"""

import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import anyio
import uvicorn
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ListToolsResult,
    PaginatedRequestParams,
    BlobResourceContents,
    TextContent,
    Tool,
)

DIR = Path(sys.argv[1])
OWN = ("bump", "bump_and_die", "die", "hang", "huge", "too_huge", "picture", "fails", "environment", "noise", "orphan")
ANY = {"type": "object", "properties": {"name": {"type": "string", "description": "whose\u202e count"}}}
PIXEL = "iVBORw0KGgo="


async def list_tools(context: ServerRequestContext[Any], params: PaginatedRequestParams | None) -> ListToolsResult:
    listed = [Tool(name=name, description=f"It does {name}.", input_schema=ANY) for name in OWN]
    more = DIR / "tools.json"
    for name, schema in (json.loads(more.read_text()) if more.exists() else {}).items():
        listed.append(Tool(name=name, description="\x1b[2Kmore\u200b" + "!" * 9000, input_schema=schema))
    return ListToolsResult(tools=listed)


async def call_tool(context: ServerRequestContext[Any], params: CallToolRequestParams) -> CallToolResult:
    act = ACTS.get(params.name)
    if act is None:
        return said(f"unknown tool {params.name}", is_error=True)
    result = act(params.arguments or {})
    if result is None:
        note("hanging")
        await anyio.sleep_forever()
    assert result is not None
    return result


def said(text: str, *more: ContentBlock, is_error: bool = False) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=text), *more], is_error=is_error)


def note(word: str) -> None:
    with (DIR / "effects").open("a") as file:
        file.write(word + "\n")


def bump(arguments: dict[str, Any]) -> CallToolResult:
    note(str(arguments.get("name", "bump")))
    return said(f"bumped {arguments.get('name', 'bump')}")


def bump_and_die(arguments: dict[str, Any]) -> CallToolResult:
    bump(arguments)
    return die(arguments)


def die(arguments: dict[str, Any]) -> CallToolResult:
    os.kill(os.getpid(), signal.SIGKILL)
    return said("never")


def huge(arguments: dict[str, Any]) -> CallToolResult:
    return said("a" * 100_000 + "\x00" + "z" * 100_000)


def too_huge(arguments: dict[str, Any]) -> CallToolResult:
    return said("b" * (17 * 1024 * 1024))


def picture(arguments: dict[str, Any]) -> CallToolResult:
    blob = EmbeddedResource(resource=BlobResourceContents(uri="file:///a.bin", blob="AAAA", mime_type="x/y"))
    return said("look:", ImageContent(data=PIXEL, mime_type="image/png"), blob)


def fails(arguments: dict[str, Any]) -> CallToolResult:
    return said("it did not work", is_error=True)


def environment(arguments: dict[str, Any]) -> CallToolResult:
    return said(json.dumps(dict(os.environ)))


def noise(arguments: dict[str, Any]) -> CallToolResult:
    sys.stderr.write(("e" * 5000 + "\n") * 400 + os.environ.get("MARKED", "") + "\n")
    sys.stderr.flush()
    return said("made noise")


def orphan(arguments: dict[str, Any]) -> CallToolResult:
    """Leave a child behind that holds our stdout."""
    if os.fork() == 0:
        signal.pause()
    return said("left one behind")


ACTS = {
    "bump": bump,
    "bump_and_die": bump_and_die,
    "die": die,
    "hang": lambda _: None,
    "huge": huge,
    "too_huge": too_huge,
    "picture": picture,
    "fails": fails,
    "environment": environment,
    "noise": noise,
    "orphan": orphan,
}


async def serve_stdio(server: Server[Any]) -> None:
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


def serve_http(server: Server[Any], port_file: Path) -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    port_file.write_text(str(listening.getsockname()[1]))
    config = uvicorn.Config(server.streamable_http_app(), log_level="critical")
    uvicorn.Server(config).run(sockets=[listening])


def main() -> None:
    note(f"started {os.getpid()}")
    if (DIR / "mute").exists():
        signal.pause()
    server: Server[Any] = Server("served", on_list_tools=list_tools, on_call_tool=call_tool)
    if sys.argv[2:3] == ["http"]:
        serve_http(server, Path(sys.argv[3]))
    else:
        print("a banner that is no message", flush=True)
        anyio.run(serve_stdio, server)


if __name__ == "__main__":
    main()
