"""Server-sent events: the durable records of one run, as they come, without a gap; the news of all runs."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import anyio
import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from onward.api.problems import Busy

HEARTBEAT_S = 15.0
MAX_STREAMS = 16

Json = dict[str, Any]


class StreamSlots:
    """Bounds how many streams are open at once, so that there is always room to ask for something else."""

    def __init__(self, limit: int = MAX_STREAMS) -> None:
        self.free = limit

    def check(self) -> None:
        """Raise Busy if no stream is free."""
        if self.free <= 0:
            raise Busy("too many event streams are open; end one, or read /records")

    @contextmanager
    def taken(self) -> Iterator[None]:
        self.free -= 1
        try:
            yield
        finally:
            self.free += 1


class EventStream(Response):
    """Sends everything of `watch()` as one event each; ends with it, with the client, or when `shutdown` is set.

    Nothing is buffered here: while the client does not read, `send` waits, and so does `watch`.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        watch: Callable[[], AsyncIterator[Json]],
        *,
        encode: Callable[[Json], bytes],
        shutdown: anyio.Event,
        slots: StreamSlots,
        heartbeat_s: float = HEARTBEAT_S,
    ) -> None:
        super().__init__(headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self.watch, self.encode, self.shutdown = watch, encode, shutdown
        self.slots, self.heartbeat_s = slots, heartbeat_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        with self.slots.taken(), suppress(OSError):
            async with anyio.create_task_group() as tasks:

                async def ends(when: Callable[[], Any]) -> None:
                    await when()
                    tasks.cancel_scope.cancel()

                tasks.start_soon(ends, lambda: self._pump(send))
                tasks.start_soon(ends, self.shutdown.wait)
                tasks.start_soon(ends, lambda: _disconnected(receive))
                tasks.start_soon(self._beat, send)
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _pump(self, send: Send) -> None:
        events = self.watch()
        try:
            async for event in events:
                await _send_chunk(send, self.encode(event))
        finally:
            # A watch that was left in the middle must let go of what it holds now, not when it is collected.
            with anyio.CancelScope(shield=True):
                if close := getattr(events, "aclose", None):
                    await close()

    async def _beat(self, send: Send) -> None:
        while True:
            await _send_chunk(send, b": \n\n")
            await anyio.sleep(self.heartbeat_s)


def record_or_delta(item: Json) -> bytes:
    """Return one event; JSON has no raw newline, so that a record is one `data:` line whatever it holds."""
    if "seq" not in item:
        return b"event: delta\ndata: %s\n\n" % orjson.dumps(item)
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (item["seq"], item["type"].encode(), orjson.dumps(item))


def news(item: Json) -> bytes:
    """Return one event of the stream of all runs: the run as listed, or the word to read the list anew."""
    kind = b"run" if "run" in item else b"resync"
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (item["id"].encode(), kind, orjson.dumps(item.get("run", {})))


async def _send_chunk(send: Send, chunk: bytes) -> None:
    await send({"type": "http.response.body", "body": chunk, "more_body": True})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
