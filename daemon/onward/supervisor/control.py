"""What people do to a run: each act is one record, durable before it is acknowledged, loaded run or not."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import structlog

from onward.core.fold import NewerRecord, text_mark
from onward.core.index import index_of
from onward.core.records import (
    CancelRequested,
    Json,
    MessageAdded,
    Record,
    RunPaused,
    RunResumed,
    SettingsChanged,
)
from onward.core.replay import NotAJournal
from onward.core.state import RunState
from onward.core.status import TERMINAL, Status
from onward.core.text import clean
from onward.core.vocabulary import Needs, Source
from onward.errors import BadRequest, Conflict, StoreError
from onward.ports.clock import Clock
from onward.ports.store import RunStore
from onward.supervisor.entries import Entry
from onward.supervisor.live import LiveRun

log = structlog.get_logger()

MAX_MESSAGE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """Acts on runs. `enter` puts a run into the queue."""

    store: RunStore
    clock: Clock
    enter: Callable[[Entry], None]

    async def send(self, entry: Entry, text: str, *, by: str, message_id: str) -> Json:
        text = self.store.secrets.mask_text(clean(text))  # as it will stand there, to be known again
        if not text.strip() or len(text.encode()) > MAX_MESSAGE_BYTES:
            raise BadRequest(f"a message has 1 to {MAX_MESSAGE_BYTES} bytes that are not all blank")

        def decide() -> list[Record]:
            known = live.state.messages.get(message_id)
            if known is not None and known != text_mark(text):
                raise Conflict(f"the message id {message_id!r} was used for another text")
            if known is not None:
                return []
            _must_live(live.state)
            return [MessageAdded(message_id=message_id, source=Source.HUMAN, content=text, by=by)]

        # A long text is written beside the journal first: meanwhile nobody else may say the same, or anything before.
        async with entry.saying, self._writing(entry) as live:
            await live.act(decide)
        return {**entry.shown(), "message_id": message_id}

    async def pause(self, entry: Entry, *, by: str, reason: str) -> Json:
        def decide() -> list[Record]:
            _must_live(live.state)
            paused = RunPaused(by=by, reason=clean(reason) or f"paused by {by}")
            return [] if live.state.status is Status.PAUSED else [paused]

        async with self._writing(entry) as live:
            await live.act(decide)
        return entry.shown()

    async def resume(self, entry: Entry, *, by: str, add: Json) -> Json:
        async with self._writing(entry) as live:
            await live.act(lambda: _resumed(live.state, by, add))
            entry.failures = 0
        if entry.loaded is None:
            self.enter(entry)
        return entry.shown()

    async def cancel(self, entry: Entry, *, by: str) -> Json:
        def decide() -> list[Record]:
            if live.state.status is Status.CANCELLED or live.state.cancel_by is not None:
                return []
            _must_live(live.state)
            return [CancelRequested(by=by)]

        async with self._writing(entry) as live:
            await live.act(decide)
        if entry.loaded is None and entry.index["status"] not in TERMINAL:
            self.enter(entry)
        return entry.shown()

    @asynccontextmanager
    async def _writing(self, entry: Entry) -> AsyncIterator[LiveRun]:
        """Give the run's open journal: the one that is being worked with, or one opened for this act alone."""
        while True:
            if (loaded := entry.loaded) is not None:
                yield loaded.live
                if loaded.native is not None:
                    loaded.native.obey()
                return
            if entry.lock.locked():
                # It is being opened or closed: look again when that is done, do not wait for the run's own end.
                await entry.waiter().wait()
                continue
            try:
                async with entry.lock:
                    live = await self._opened(entry)
                    try:
                        yield live
                    finally:
                        await _closed(entry, live)
            finally:
                entry.notify()  # others may wait for the lock
            return

    async def _opened(self, entry: Entry) -> LiveRun:
        try:
            run_log = await self.store.open(entry.run_id)
        except (NotAJournal, NewerRecord) as error:
            raise Conflict(f"{entry.run_id} cannot be changed: {error}") from error
        return LiveRun(run_log, self.store, self.clock, lambda: None)


async def _closed(entry: Entry, live: LiveRun) -> None:
    entry.index = index_of(live.state)
    try:
        await live.write_index()
    except StoreError as error:
        log.warning("index not written", run_id=entry.run_id, error=str(error))
    finally:
        await live.close()


def _must_live(state: RunState) -> None:
    if state.status in TERMINAL or state.cancel_by is not None:
        raise Conflict(f"{state.run_id} is over ({state.status}: {state.reason or 'a cancel was asked'})")


def _resumed(state: RunState, by: str, add: Json) -> list[Record]:
    _must_live(state)
    if state.status is Status.QUARANTINED or state.needs == Needs.DECISION:
        raise Conflict(f"{state.run_id} is {state.status}: {state.reason}; resuming does not mend that")
    records: list[Record] = []
    if add:
        records.append(SettingsChanged(by=by, limits=_raised(state, add)))
    if state.status is not Status.ACTIVE or state.cooling:
        records.append(RunResumed(by=by, reason=f"resumed by {by}"))
    return records


def _raised(state: RunState, add: Json) -> Json:
    limits = dict(state.limits)
    for name, more in add.items():
        if name not in limits:
            raise Conflict(f"{state.run_id} has no limit {name!r} that could be raised")
        if not isinstance(more, int | float) or isinstance(more, bool) or more <= 0:
            raise BadRequest(f"the limit {name!r} can be raised by a positive number, not by {more!r}")
        limits[name] += more
    return limits
