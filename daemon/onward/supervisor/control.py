"""What people do to a run: each act is one record, durable before it is acknowledged, loaded run or not."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass

import orjson
import structlog

from onward.config.numbers import MOST
from onward.core.daemon_facts import READ
from onward.core.fold import NewerRecord
from onward.core.fold_work import text_mark
from onward.core.ids import check_message_id
from onward.core.inspection import Revival, by_hand, out_of_quarantine, revive_refused, revived
from onward.core.interactions import Interaction, Kind, checked, winner
from onward.core.permissions import grant_for
from onward.core.plan import lost_records
from onward.core.records import (
    CancelRequested,
    InteractionAnswered,
    Json,
    MessageAdded,
    Record,
    RunEnded,
    RunPaused,
    RunResumed,
    SettingsChanged,
)
from onward.core.replay import NotAJournal
from onward.core.state import RunState
from onward.core.status import TERMINAL, Status
from onward.core.text import clean
from onward.core.vocabulary import Needs, Source
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
        self._enter_if_active(entry)
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

    async def answer(self, entry: Entry, interaction_id: str, answer: Json, *, by: str) -> Json:
        # One after the other: a long answer is written in two steps, and a full disk lets answers wait.
        async with entry.saying, self._writing(entry) as live:
            question = live.state.interactions.get(interaction_id)
            if question is None:
                raise NotFound(f"{entry.run_id} has asked no question {interaction_id[:40]!r}")
            value = self._as_written(checked(question, answer))

            def decide() -> list[Record]:
                if question.answer is not None:
                    return []
                if question.closed is not None:
                    raise Conflict(_closed_as(question))
                _must_live(live.state)
                return carried_out(live.state, question, value, by)

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


def _must_live(state: RunState) -> None:
    if state.status in TERMINAL or state.cancel_by is not None:
        raise Conflict(f"{state.run_id} is over ({state.status}: {state.reason or 'a cancel was asked'})")


def _closed_as(question: Interaction) -> str:
    return f"{question.interaction_id} is no longer open: {question.closed}"


def carried_out(state: RunState, question: Interaction, answer: Json, by: str) -> list[Record]:
    """Return an answer with what it changes at once, in one write; the rest is carried out by the run.

    The answer comes last, so that one of which only a part reached the disk can be given again. An end stays the end.
    """
    answered = InteractionAnswered(interaction_id=question.interaction_id, answer=answer, by=by)
    if question.kind == Kind.BUDGET:
        resumed = [RunResumed(by=by, reason="the budget was extended")] if state.status is Status.PARKED else []
        return [SettingsChanged(by=by, limits=_raised(state, answer["add"])), *resumed, answered]
    if question.kind == Kind.PERMISSION and answer.get("always"):
        arguments = answer["arguments"] if "arguments" in answer else question.ask["arguments"]
        grant = grant_for(question.ask["tool"], arguments)
        return [SettingsChanged(by=by, limits=state.limits, grants=[*state.grants, grant]), answered]
    if question.kind == Kind.DAMAGE and answer["decision"] == "go_on":
        return [*by_hand(state, by), answered]
    if question.kind == Kind.DAMAGE:
        return [answered, RunEnded(status=Status.FAILED, reason=f"given up by {by} after damage", by=by)]
    return [answered]


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
        if not limits[name] + more <= MOST:
            raise BadRequest(f"the limit {name!r} cannot be raised that far; no limit is above {MOST}")
        limits[name] += more
    return limits
