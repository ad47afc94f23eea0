"""Which runs come to work, and when: suspects alone and first, then the others side by side; none while it is held."""

from collections.abc import Mapping, Sequence

import anyio
import structlog
from anyio.abc import TaskGroup

from onward.core.daemon_facts import ENTERED, LOOP, READ, StartDecision, has_settled, is_suspect
from onward.ports.clock import Clock
from onward.ports.store import RunStore
from onward.supervisor.daemon_log import DaemonLog
from onward.supervisor.drain import Drain
from onward.supervisor.entries import Entry
from onward.supervisor.hold import Hold
from onward.supervisor.report import Report
from onward.supervisor.slots import Slot, Slots
from onward.supervisor.waking import Waking
from onward.supervisor.worker import Worker

log = structlog.get_logger()

SUSPECT_S = 60.0
"""Seconds after which a suspect that does nothing is no longer waited for."""


class Admission:
    """The one way in: first start, recovery at boot and every later return pass through the queue and `Worker.work`."""

    def __init__(
        self,
        *,
        entries: Mapping[str, Entry],
        worker: Worker,
        waking: Waking,
        store: RunStore,
        daemon_log: DaemonLog,
        slots: Slots,
        clock: Clock,
        drain: Drain,
        report: Report,
        hold: Hold,
    ) -> None:
        self._entries = entries
        self._worker = worker
        self._waking = waking
        self._store = store
        self._log = daemon_log
        self._slots = slots
        self._clock = clock
        self._drain = drain
        self._report = report
        self._queue, self._queued = anyio.create_memory_object_stream[Entry](float("inf"))
        self._tasks: TaskGroup | None = None
        self._idle = anyio.Event()
        self._decided: StartDecision | None = None
        self._found: list[Entry] = []
        self._hold = hold
        self.working = 0

    def prepare(self, decided: StartDecision) -> None:
        """Take what was decided about this start."""
        self._decided = decided

    def enqueue(self, entry: Entry) -> None:
        """Let the run be entered, unless it will be or is already."""
        if not entry.queued and entry.loaded is None and entry.suspended is None:
            entry.queued = True
            self._queue.send_nowait(entry)
            entry.notify()

    def _enqueue_in(self, entry: Entry, seconds: float | None) -> None:
        """Let the run be entered after so many seconds, and not when it was to be before; None: not by itself."""

        async def later(seconds: float, timer: anyio.CancelScope) -> None:
            with timer:
                await self._clock.sleep(seconds)
                self.enqueue(entry)

        if entry.timer is not None:
            entry.timer.cancel()
            entry.timer = None
        if self._tasks is not None and seconds is not None:
            entry.timer = anyio.CancelScope()
            self._tasks.start_soon(later, seconds, entry.timer)

    def begin(self, tasks: TaskGroup) -> None:
        """Let the runs that were found come in, those that rest when their time comes; `serve` serves the queue.

        The oldest first, as they came in before: what was under way does not wait behind all that only stood in line.
        """
        self._tasks = tasks
        found = [entry for entry in self._entries.values() if entry.queued]
        self._found = sorted(found, key=lambda entry: str(entry.index.get("created_at") or ""))
        for entry in self._found:
            self._queue.send_nowait(entry)
        for entry in self._entries.values():
            self._enqueue_in(entry, self._waking.found_at_rest(entry))

    async def serve(self) -> None:
        """Let runs in, for ever."""
        async for entry in self._queued:
            if not entry.queued:
                continue  # it came in another way meanwhile
            if self._hold.holds_back(entry):
                continue
            if not self._hold.on:
                await self._suspects_first()
            if self._drain.on:
                return
            if entry.queued and not self._hold.holds_back(entry):
                await self._slots.acquire()
                self._let_in(entry)

    async def drained(self) -> None:
        """Wait until no run works any more."""
        while self.working:
            self._idle = anyio.Event()
            await self._idle.wait()

    def let_go(self, entry: Entry) -> None:
        """Let one run in that was held, and passes the hold now."""
        if entry.held is not None:
            entry.held = None
            self._report.look_again(entry.run_id)
            self.enqueue(entry)

    def let_all_go(self) -> None:
        """Let all runs in that were held."""
        self._hold.reasons.clear()
        for entry in list(self._entries.values()):
            self.let_go(entry)

    # Suspects

    async def _suspects_first(self) -> None:
        """Before the first run comes in: find those that may be what killed daemons, and enter them one by one."""
        decided, self._decided = self._decided, None
        if decided is None:
            return
        found, self._found = [entry for entry in self._found if entry.queued], []
        # Those that are watched are named before they are read.
        looked_at = [entry for entry in found if not self._is_watched(entry)]
        unknown = [entry for entry in looked_at if decided.unclean or entry.suspect is None]
        if unknown:
            await self._log.note("FoldingBegun", runs=len(unknown))
            await self._look_at_all(unknown, one_by_one=decided.one_by_one)
            await self._log.note("FoldingEnded")
        for entry in found:
            if self._hold.on:  # since a moment ago: the rest of them come first when they are released
                self._decided, self._found = decided, found
                return
            if (entry.suspect or self._is_watched(entry)) and entry.queued and not self._drain.on:
                log.warning("suspect enters alone", run_id=entry.run_id)
                await self._slots.acquire()
                await self._watched(entry)

    def _is_watched(self, entry: Entry) -> bool:
        """Whether the run is named when it is entered: it ended a daemon before, or may be what ended so many."""
        return entry.run_id in self._log.facts.watched or LOOP in self._hold.reasons

    async def _look_at_all(self, entries: Sequence[Entry], *, one_by_one: bool) -> None:
        if one_by_one:
            for entry in entries:
                await self._log.note("RunEntering", run_id=entry.run_id, doing=READ)
                await self._look_at(entry)
            return
        async with anyio.create_task_group() as tasks:
            for entry in entries:
                tasks.start_soon(self._look_at, entry)  # the store folds a few at a time

    async def _look_at(self, entry: Entry) -> None:
        try:
            entry.suspect = is_suspect((await self._store.read(entry.run_id)).state)
        except Exception as error:  # noqa: BLE001  # the border of one run: it is shown as bad when it is opened
            log.debug("run cannot be looked at", run_id=entry.run_id, error=str(error))
            entry.suspect = False

    async def _watched(self, entry: Entry) -> None:
        """Let a run in that may end this daemon; returns when it has progressed, rests, waits, or had its time."""
        over = anyio.Event()
        async with self._log.naming(entry.run_id, ENTERED), anyio.create_task_group() as both:

            async def settled() -> None:
                progress_at: str | None = None
                while not over.is_set():
                    if entry.loaded is not None:
                        state = entry.loaded.live.state
                        progress_at = progress_at or state.last_progress_at
                        if has_settled(state, progress_at):
                            break
                    await entry.waiter().wait()
                both.cancel_scope.cancel()

            both.start_soon(settled)
            self._let_in(entry, over)
            await self._clock.sleep(SUSPECT_S)
            both.cancel_scope.cancel()

    # At work

    def _let_in(self, entry: Entry, over: anyio.Event | None = None) -> None:
        """Take the slot that was acquired, or give it back where the run is not to come in any more.

        It is asked here, without a pause before the run is at work: a hold may have been acknowledged, or a stop asked
        for, while the run waited for the slot. `over` is set when the run has come to rest.
        """
        if self._tasks is None:
            return
        if self._drain.on or not entry.queued or self._hold.holds_back(entry):
            self._slots.release()
            if over is not None:
                over.set()
            return
        if over is None and self._is_watched(entry):
            self._tasks.start_soon(self._watched, entry)
            return
        entry.queued = False
        self.working += 1
        self._tasks.start_soon(self._occupy, entry, Slot(self._slots), over)

    async def _occupy(self, entry: Entry, slot: Slot, over: anyio.Event | None) -> None:
        try:
            again = await self._worker.work(entry, slot)
        finally:
            slot.release()
            self.working -= 1
            if self.working == 0:
                self._idle.set()
            if over is not None:
                over.set()
        entry.notify()
        self._report.tell()
        if not self._drain.on:
            self._enqueue_in(entry, again)
