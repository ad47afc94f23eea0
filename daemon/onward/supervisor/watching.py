"""What clients are told as it happens: one run's records and pieces of answers, and the news of all runs."""

import secrets
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream

from onward.core.records import Json
from onward.core.status import TERMINAL
from onward.supervisor.entries import Entry, Piece

WATCH_PAGE = 200
DELTAS = 256
NEWS = 4096
_MARKS = ("status", "needs", "waiting_on", "error")

ReadPage = Callable[[int, int], Awaitable[list[Json]]]


async def follow(entry: Entry, read: ReadPage, *, after: int, deltas: bool) -> AsyncIterator[Json]:
    """Yield a run's durable records from `read(after, limit)` as they come, and pieces of answers between them.

    A piece is only yielded while the turn that it belongs to is not written: no text comes after its turn.
    """
    pieces, told = anyio.create_memory_object_stream[Piece](DELTAS)
    if deltas:
        entry.watchers.add(pieces)
    try:
        while True:
            changed = entry.waiter()
            is_over = entry.loaded is None and entry.shown()["status"] in TERMINAL  # before the last look, not after
            page = await read(after, WATCH_PAGE)
            for record in page:
                after = max(after, record["seq"])
                yield record
            if page:
                continue
            if is_over:
                return
            async for piece in _until(changed, told):
                if piece.request == entry.request():
                    yield {"delta": piece.text}
    finally:
        entry.watchers.discard(pieces)
        pieces.close()
        told.close()


async def _until(changed: anyio.Event, told: MemoryObjectReceiveStream[Piece]) -> AsyncIterator[Piece]:
    """Yield the pieces of an answer until something durable has changed."""
    while not changed.is_set():
        piece: Piece | None = None
        async with anyio.create_task_group() as first:

            async def woken() -> None:
                await changed.wait()
                first.cancel_scope.cancel()  # ended before the next round

            first.start_soon(woken)
            piece = await told.receive()
            first.cancel_scope.cancel()
        if piece is not None:
            yield piece


@dataclass(slots=True)
class News:
    """The changes of status of all runs, numbered, the newest of them kept.

    `epoch` is new at each start of the daemon: numbers of another one mean nothing here.
    """

    epoch: str = field(default_factory=lambda: secrets.token_hex(4))
    size: int = NEWS
    count: int = 0
    _kept: deque[Json] = field(default_factory=deque)
    _marks: dict[str, tuple[object, ...]] = field(default_factory=dict)
    _more: anyio.Event = field(default_factory=anyio.Event)

    def tell(self, entry: Entry) -> None:
        """Add the run if what it is has changed since it was told the last time, and is durable."""
        if not entry.settled():
            return
        index = entry.shown()
        mark = tuple(index.get(name) for name in _MARKS)
        if self._marks.get(entry.run_id) == mark:
            return
        self._marks[entry.run_id] = mark
        self.count += 1
        self._kept.append({"id": f"{self.epoch}:{self.count}", "run": index})
        if len(self._kept) > self.size:
            self._kept.popleft()
        self._more.set()
        self._more = anyio.Event()

    async def after(self, position: str | None) -> AsyncIterator[Json]:
        """Yield `{"id", "run"}` for each change behind a position, as they come, and never end.

        `{"id"}` alone comes where changes are missing: for no position, one of another epoch, or one that is not kept
        any more, be it that the reader was too slow. Whoever reads the runs anew after it misses nothing.
        """
        at = self._number(position)
        while True:
            oldest = self.count - len(self._kept)
            if at is None or at < oldest:
                at = self.count
                yield {"id": f"{self.epoch}:{at}"}
            elif at == self.count:
                await self._more.wait()
            else:
                at += 1
                yield self._kept[at - 1 - oldest]

    def _number(self, position: str | None) -> int | None:
        epoch, _, number = (position or "").rpartition(":")
        known = epoch == self.epoch and number.isascii() and number.isdecimal() and int(number) <= self.count
        return int(number) if known else None
