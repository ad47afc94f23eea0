"""Servers at a URL: one built with the SDK, and an endpoint that fails in every way there is."""

import json
import os
import socket
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
import uvicorn

from onward.core.vocabulary import Needs, Outcome
from onward.native.mcp.place import Unavailable
from tests.native.mcp.world import McpWorld, server_argv
from tests.support import eventually

MARK = "a-marked-value-0123456789"

Json = dict[str, Any]
Send = Callable[[Json], Awaitable[None]]


@dataclass
class Endpoint:
    """Speaks the protocol of before 2026 with sessions; `mood` is what it does with the next requests."""

    mood: str = "fine"
    calls: list[str] = field(default_factory=list)
    authorizations: set[str] = field(default_factory=set)
    sessions: int = 0
    url: str = ""

    async def __call__(self, scope: Json, receive: Callable[[], Awaitable[Json]], send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        self.authorizations.add(headers.get("authorization", ""))
        if scope["method"] != "POST":
            await respond(send, 405)
            return
        body = b""
        while (message := await receive())["type"] == "http.request":
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        await self.post(json.loads(body), headers, send)

    async def post(self, request: Json, headers: dict[str, str], send: Send) -> None:
        method, current = request["method"], f"session-{self.sessions}"
        if method == "tools/call":
            self.calls.append(request["params"]["name"])
        if self.mood == "unauthorized":
            await respond(send, 401)
        elif method == "server/discover":
            await answer(send, request, error={"code": -32601, "message": "no such method"})
        elif method == "initialize":
            self.sessions += 1
            version = request["params"]["protocolVersion"]
            told = {"protocolVersion": version, "capabilities": {}, "serverInfo": {"name": "e", "version": "1"}}
            await answer(send, request, told, [(b"mcp-session-id", f"session-{self.sessions}".encode())])
        elif headers.get("mcp-session-id") != current or self.mood == "forgetful":
            self.mood = "fine"
            await respond(send, 404)
        elif "id" not in request:
            await respond(send, 202)
        elif method == "tools/list":
            await answer(send, request, {"tools": [{"name": "bump", "inputSchema": {"type": "object"}}]})
        else:
            await self.called(request, send)

    async def called(self, request: Json, send: Send) -> None:
        if self.mood == "gateway":
            await respond(send, 502)
        elif self.mood == "huge":
            await answer(send, request, {"content": [{"type": "text", "text": "x" * (17 * 1024 * 1024)}]})
        elif self.mood == "cut":
            await send(
                {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]}
            )
            await send({"type": "http.response.body", "body": b"event: message\n"})
        else:
            await answer(send, request, {"content": [{"type": "text", "text": "done"}]})


async def respond(send: Send, status: int, body: bytes = b"", headers: list[tuple[bytes, bytes]] | None = None) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers or []})
    await send({"type": "http.response.body", "body": body})


async def answer(
    send: Send,
    request: Json,
    result: Json | None = None,
    headers: list[tuple[bytes, bytes]] | None = None,
    error: Json | None = None,
) -> None:
    told = {"jsonrpc": "2.0", "id": request["id"]} | ({"error": error} if error else {"result": result})
    kind = (b"content-type", b"application/json")
    await respond(send, 200, json.dumps(told).encode(), [kind, *(headers or [])])


@asynccontextmanager
async def serving(endpoint: Endpoint) -> AsyncIterator[Endpoint]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        endpoint.url = f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
        server = uvicorn.Server(
            uvicorn.Config(endpoint, lifespan="off", log_level="critical", timeout_graceful_shutdown=1)
        )
        server.capture_signals = _Nothing  # type: ignore[method-assign,assignment]  # the test run keeps its handlers
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve, [listening])
            try:
                yield endpoint
            finally:
                server.should_exit = True


class _Nothing:
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def start_server(world: McpWorld, port: int) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(server_argv("served", world.top, str(port)))


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


async def test_a_server_of_the_sdk_dies_in_a_call_is_away_and_comes_back(world: McpWorld) -> None:
    port = free_port()
    server = start_server(world, port)
    try:
        await eventually(lambda: listens(port), 60)
        async with world.entered(own={"url": f"http://127.0.0.1:{port}/mcp", "timeout_s": 30}):
            first = await world.call("bump", {"name": "one"})
            late = await world.call("hang", deadline_s=0.3)
            cut = await world.call("bump_and_die", {"name": "two"})
            server.wait(10)
            away = await world.call("bump", {"name": "three"})
            server = start_server(world, port)
            await eventually(lambda: listens(port), 60)
            again = await world.call("bump", {"name": "four"})
    finally:
        server.kill()
        server.wait()

    assert first.text == "bumped one"
    assert late.outcome is Outcome.TIMEOUT
    assert cut.outcome is Outcome.INTERRUPTED
    assert "the connection" in cut.text
    assert "It has NOT been retried" in cut.text
    assert away.outcome is Outcome.ERROR
    assert "did not carry the call out, so nothing was done: it could not be reached" in away.text
    assert again.text == "bumped four"
    assert world.effects() == ["one", "hanging", "two", "four"]


async def test_an_endpoint_that_is_not_there_is_said_at_once(world: McpWorld) -> None:
    with pytest.raises(Unavailable, match="it cannot be reached") as raised:
        async with world.entered(own={"url": f"http://127.0.0.1:{free_port()}/mcp"}):
            pytest.fail("it was entered")
    assert raised.value.needs is Needs.NETWORK


async def test_a_header_is_made_of_a_variable_whose_value_is_kept_secret(world: McpWorld) -> None:
    world.environment["TOKEN_OF_OURS"] = MARK
    async with serving(Endpoint()) as endpoint:
        own = {"url": endpoint.url, "headers_from": {"Authorization": "Bearer TOKEN_OF_OURS"}}
        async with world.entered(own=own):
            result = await world.call("bump")

    assert (result.text, endpoint.authorizations) == ("done", {f"Bearer {MARK}"})
    assert world.secrets.mask_text(f"it was {MARK}") == "it was [secret TOKEN_OF_OURS]"


async def test_a_refused_key_is_said_to_be_one(world: McpWorld) -> None:
    async with serving(Endpoint(mood="unauthorized")) as endpoint:
        with pytest.raises(Unavailable, match=r"HTTP 401\); is the value in headers_from right") as raised:
            async with world.entered(own={"url": endpoint.url}):
                pytest.fail("it was entered")
    assert raised.value.needs is Needs.KEY


@pytest.mark.parametrize(
    ("mood", "outcome", "said"),
    [
        ("gateway", Outcome.INTERRUPTED, "(HTTP 502). Whether it took effect is unknown"),
        ("cut", Outcome.INTERRUPTED, "Whether it took effect is unknown"),
        ("unauthorized", Outcome.ERROR, "nothing was done: it refused the request (HTTP 401)"),
        ("forgetful", Outcome.ERROR, "nothing was done: it had forgotten the session"),
        ("huge", Outcome.ERROR, "larger than 16777216 bytes and was dropped"),
    ],
)
async def test_one_request_that_fails_is_one_call_that_fails(
    world: McpWorld, mood: str, outcome: Outcome, said: str
) -> None:
    async with serving(Endpoint()) as endpoint, world.entered(own={"url": endpoint.url}):
        endpoint.mood = mood
        result = await world.call("bump")
        endpoint.mood = "fine"
        after = await world.call("bump")

    assert (result.outcome, after.text) == (outcome, "done")
    assert said in result.text
    assert endpoint.calls == ["bump", "bump"]


async def test_descriptors_stay_as_many_over_many_sessions(world: McpWorld) -> None:
    counts: list[int] = []
    async with serving(Endpoint()) as endpoint:
        for _ in range(6):
            async with world.entered(own={"url": endpoint.url}):
                await world.call("bump")
            await eventually(lambda: len(os.listdir("/proc/self/fd")) <= (counts[1] if len(counts) > 1 else 10_000))
            counts.append(len(os.listdir("/proc/self/fd")))

    assert max(counts[1:]) <= counts[1]
