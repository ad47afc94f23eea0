"""What people do to a run: decided by `core.acts`, durable before it is acknowledged, loaded run or not."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass

import orjson
import structlog

from onward.core import acts
from onward.core.daemon_facts import READ
from onward.core.fold import NewerRecord
from onward.core.ids import check_message_id
from onward.core.inspection import Revival, by_hand, out_of_quarantine, revive_refused, revived
from onward.core.interactions import Kind, checked, winner
from onward.core.plan import lost_records
from onward.core.records import Json, Record
from onward.core.replay import NotAJournal
from onward.core.status import TERMINAL, Status
from onward.core.text import clean
from onward.errors import BadRequest, Conflict, NotFound, OnwardError, StoreError
from onward.ports.clock import Clock
from onward.ports.store import RunStore
from onward.supervisor.daemon_log import DaemonLog
from onward.supervisor.entries import Entry
from onward.supervisor.live import LiveRun
from onward.supervisor.observed import Saw, nobody

log = structlog.get_logger()

MAX_MESSAGE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """Acts on runs. `enter` puts a run into the queue."""

    store: RunStore
    clock: Clock
    daemon_log: DaemonLog
    enter: Callable[[Entry], None]
    sweep: Callable[[LiveRun], Awaitable[None]]
    """Removes the evidence of settled calls."""
    observe: Callable[[], Saw] = lambda: nobody

    async def send(self, entry: Entry, text: str, *, by: str, message_id: str) -> Json:
        check_message_id(message_id)
        text = self.store.secrets.mask_text(clean(text))  # as it will stand there, to be known again
        if not text.strip() or len(text.encode()) > MAX_MESSAGE_BYTES:
            raise BadRequest(f"a message has 1 to {MAX_MESSAGE_BYTES} bytes that are not all blank")

        # A long text is written beside the journal first: meanwhile nobody else may say the same, or anything before.
        async with entry.saying, self._writing(entry) as live:
            await live.act(lambda: acts.said(live.state, text, message_id=message_id, by=by))
        self._enter_if_active(entry)
        return {**entry.shown(), "message_id": message_id}

    async def pause(self, entry: Entry, *, by: str, reason: str) -> Json:
        async with self._writing(entry) as live:
            await live.act(lambda: acts.paused(live.state, by=by, reason=clean(reason)))
        return entry.shown()

    async def resume(self, entry: Entry, *, by: str, add: Json) -> Json:
        async with self._writing(entry) as live:
            await live.act(lambda: acts.resumed(live.state, by=by, add=add))
            entry.failures = 0
        if entry.loaded is None:
            self.enter(entry)
        return entry.shown()

    async def revive(self, entry: Entry, *, by: str, max_revivals: int | None) -> Json:
        reason = self.daemon_log.facts.suspended.get(entry.run_id)
        if reason is None:
            return self._enter_revived(entry, await self._write_revival(entry, by=by, max_revivals=max_revivals))
        entry.suspended = None
        try:
            async with self.daemon_log.naming(entry.run_id, READ):
                revival = await self._write_revival(entry, by=by, max_revivals=max_revivals, why=reason)
            # Before it is entered: then it is named again.
            await self.daemon_log.end_quarantine(entry.run_id, by=by)
        except OnwardError:
            entry.suspended = reason if entry.loaded is None and not entry.queued else None
            raise
        return self._enter_revived(entry, revival, suspended=True)

    async def _write_revival(
        self, entry: Entry, *, by: str, max_revivals: int | None, why: str | None = None
    ) -> Revival:
        """Write that a human revives the run; `why` it was not even read until now. It is not entered yet.

        Raises:
            Conflict: It is refused, and nothing was written.
        """
        told: list[Revival] = []

        def decide() -> list[Record]:
            told[:] = [_revival(live, entry, max_revivals)]
            return by_hand(live.state, by) if told[0].ok else []

        async with entry.saying, self._writing(entry) as live:
            if _revival(live, entry, max_revivals).reason == "damaged":
                # First: who dies after the record would find them again, and ask once more.
                await self.store.set_call_dirs_aside(entry.run_id)
            await live.act(decide)
        (revival,) = told
        if why is not None:
            revival = out_of_quarantine(revival, why)
        if not revival.ok and revival.reason != "live":
            raise Conflict(f"{entry.run_id} is not revived: {revival.reason} ({revival.detail})")
        return revival

    def _enter_revived(self, entry: Entry, revival: Revival, *, suspended: bool = False) -> Json:
        """Let a run come in that was revived; one that was `suspended` is looked at, even where it waits or is over."""
        entry.failures = 0
        if suspended and entry.loaded is None:
            self.enter(entry)
        self._enter_if_active(entry)
        return {**entry.shown(), "revival": asdict(revival)}

    async def cancel(self, entry: Entry, *, by: str) -> Json:
        async with self._writing(entry) as live:
            await live.act(lambda: acts.cancelled(live.state, by=by))
        if entry.loaded is None and entry.index["status"] not in TERMINAL:
            self.enter(entry)
        return entry.shown()

    async def answer(self, entry: Entry, interaction_id: str, answer: Json, *, by: str) -> Json:
        # One after the other: a long answer is written in two steps, and a full disk lets answers wait.
        async with entry.saying, self._writing(entry) as live:
            question = live.state.interactions.get(interaction_id)
            if question is None:
                raise NotFound(f"{entry.run_id} has asked no question {interaction_id[:40]!r}")
            value = self._as_written(checked(question, answer))

            def decide() -> list[Record]:
                return acts.answered(live.state, question, value, by=by)

            if question.kind == Kind.DAMAGE and value.get("decision") == "go_on" and decide():
                # First: who dies after the answer would find them again, and ask once more.
                await self.store.set_call_dirs_aside(entry.run_id)
            await live.act(decide)
            if question.answer != value:
                raise Conflict(winner(question))
        self._enter_if_active(entry)
        return {**entry.shown(), "interaction_id": interaction_id, "answer": value}

    def _as_written(self, answer: Json) -> Json:
        """Return an answer as it will stand in the journal, to be known again."""
        written: Json = orjson.loads(self.store.secrets.mask_record(orjson.dumps({"answer": answer})))["answer"]
        return written

    def _enter_if_active(self, entry: Entry) -> None:
        if entry.loaded is None and entry.index["status"] == Status.ACTIVE:
            self.enter(entry)

    @asynccontextmanager
    async def _writing(self, entry: Entry) -> AsyncIterator[LiveRun]:
        """Give the run's open journal: the one that is being worked with, or one opened for this act alone."""
        while True:
            if entry.suspended is not None:
                raise Conflict(f"{entry.run_id} is quarantined: {entry.suspended}. First: onward revive {entry.run_id}")
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
                        await self._close(entry, live)
            finally:
                entry.notify()  # others may wait for the lock
            return

    async def _opened(self, entry: Entry) -> LiveRun:
        try:
            run_log = await self.store.open(entry.run_id)
        except (NotAJournal, NewerRecord) as error:
            raise Conflict(f"{entry.run_id} cannot be changed: {error}") from error
        return LiveRun(run_log, self.store, self.clock, lambda: None, self.observe())

    async def _close(self, entry: Entry, live: LiveRun) -> None:
        entry.keep(live.state)
        try:
            await self.sweep(live)  # before the index says that it is over: nobody looks behind that again
            await live.write_index()
        except StoreError as error:
            log.warning("index not written", run_id=entry.run_id, error=str(error))
        finally:
            await live.close()


def _revival(live: LiveRun, entry: Entry, cap: int | None) -> Revival:
    """Return what a human's revive of the run would come to now. Behind a run at work nothing is lost: it went on."""
    state = live.state
    works = entry.loaded is not None and state.status is Status.ACTIVE
    loss = None if works else lost_records(state, live.beside.call_dirs, live.beside.index_seq)
    refused = revive_refused(state, loss=loss, live=works, cap=cap)
    if refused is None:
        return revived(state, loss=loss)
    return Revival(ok=False, run_id=state.run_id, reason=refused.reason, detail=refused.detail)
