"""The API over a fake daemon, on a real socket."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import httpx2
from anyio import to_thread

from onward.api.app import make_app
from onward.api.server import serve
from onward.core.records import AssistantTurn, RunEnded
from onward.testing.fake_operations import FakeOperations

CHANGE = {"onward-request": "1", "content-type": "application/json"}
ENDED = RunEnded(status="completed", reason="finished", result="all done")

Fields = dict[str, str]


async def blocks(response: httpx2.Response) -> AsyncIterator[Fields]:
    """Every event as its fields, as a browser would read them."""
    fields: Fields = {}
    async for line in response.aiter_lines():
        name, _, value = line.partition(": ")
        if name:
            fields[name] = value
        elif fields:
            yield fields
            fields = {}


def turn(number: int, text: str) -> AssistantTurn:
    return AssistantTurn(
        turn=number,
        seen=1,
        content=[{"type": "text", "text": text}],
        stop_reason="end_turn",
        usage={},
        cost_usd=0.0,
        provider="scripted",
        model="x",
        active_s=0.0,
    )


@dataclass(slots=True, kw_only=True)
class Served:
    """A served fake: `client` speaks to it, `shutdown` ends it."""

    socket: Path
    operations: FakeOperations
    client: httpx2.AsyncClient
    shutdown: anyio.Event = field(default_factory=anyio.Event)

    async def start(self, **members: Any) -> httpx2.Response:
        body = {"task": "do it", "workspace": "/tmp", **members}
        return await self.client.post("/v1/runs", json=body, headers=CHANGE)

    async def started(self, **members: Any) -> str:
        run_id: str = (await self.start(**members)).json()["run_id"]
        return run_id


@asynccontextmanager
async def serving(socket: Path, operations: FakeOperations, **options: Any) -> AsyncIterator[Served]:
    """Serve at `socket` as long as the block lasts."""
    ready = anyio.Event()
    transport = httpx2.AsyncHTTPTransport(uds=str(socket))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        served = Served(socket=socket, operations=operations, client=client)
        app = await to_thread.run_sync(lambda: make_app(operations, shutdown=served.shutdown, **options))
        async with anyio.create_task_group() as tasks:

            async def run() -> None:
                await serve(app, socket, on_ready=ready.set, shutdown=served.shutdown)

            tasks.start_soon(run)
            await ready.wait()
            try:
                with anyio.fail_after(30):
                    yield served
            finally:
                served.shutdown.set()
