"""The supervisor: the parts of a daemon put together, its life, and all that can be asked of it.

Each operation is the job of one part: `starting` begins a run, `reading` answers what is asked about runs, `control`
carries out what people do to one, `holding` holds them back. There is one way in: first start, recovery at boot and
every later return pass through the queue of `admission` and `Worker.work`.
"""

import os
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

import anyio
import anyio.lowlevel
import structlog

from onward import __version__
from onward.core.daemon_facts import StartDecision
from onward.core.records import Json
from onward.core.status import Status
from onward.ports.clock import Clock
from onward.ports.operations import StartRequest
from onward.ports.process import ProcessSpawner
from onward.ports.store import RunStore
from onward.ports.tool import Tool
from onward.recovery.recover import Claimant
from onward.supervisor.admission import Admission
from onward.supervisor.configuration import AsStarted, Configuration
from onward.supervisor.control import Control
from onward.supervisor.daemon_log import DaemonLog
from onward.supervisor.drain import Drain
from onward.supervisor.entries import Entries, Entry
from onward.supervisor.finding import Finding
from onward.supervisor.grace import Grace
from onward.supervisor.hold import Hold
from onward.supervisor.holding import Holding
from onward.supervisor.indexing import keep_indexes
from onward.supervisor.metrics import Meter
from onward.supervisor.models import Models
from onward.supervisor.observed import Observed, Saw, nobody
from onward.supervisor.reading import Reading
from onward.supervisor.report import Report
from onward.supervisor.slots import Pacer, Slots
from onward.supervisor.starting import Starting
from onward.supervisor.sweeping import Sweeping
from onward.supervisor.waking import Waking
from onward.supervisor.watching import News
from onward.supervisor.worker import Worker
from onward.supervisor.workspaces import Workspaces

log = structlog.get_logger()

DRAIN_S = 45.0


@dataclass(kw_only=True, eq=False, repr=False)
class Supervisor:
    """Implements `onward.ports.operations.Operations`. `boot`, then `serve` until `stop`."""

    store: RunStore
    spawner: ProcessSpawner
    tools: dict[str, Tool]
    models: Models
    clock: Clock
    claimant: Claimant
    agent_dirs: Sequence[Path]
    configuration: Configuration = field(default_factory=AsStarted)
    on_questions: Callable[[Sequence[Json]], None] = lambda _questions: None
    """Is told the open questions of a run whenever they may have changed."""
    default_agent: str = "worker"
    max_active_runs: int = 50
    entry_rate: float = 20.0
    """How many runs that were found at the start come back in a second, at most."""
    orphan_grace_s: float = 600.0
    """Seconds that a command goes on without any daemon."""
    isolation: Json | None = None
    """How commands are kept apart, as it is told."""
    meter: Meter = field(default_factory=Meter)
    saw: Callable[[], Saw] = lambda: nobody
    """Makes what is told the records of one run, beside the meter."""

    def __post_init__(self) -> None:
        store, clock = self.store, self.clock
        self._began, self._stopped = clock.monotonic(), anyio.Event()
        self._drain, self._report, self._news = Drain(), Report(), News()
        self._entries = Entries(self._tell)
        self._slots = Slots(self.max_active_runs)
        self._log = DaemonLog(store, clock, self.claimant)
        self._hold = Hold(self._log, self._report)
        self._grace = Grace(clock)
        self._waking = Waking(clock, self._grace, self._drain)
        self._workspaces = Workspaces()
        self._sweeping = Sweeping(store=store, spawner=self.spawner)
        self._admission = Admission(
            entries=self._entries,
            worker=self._worker(),
            waking=self._waking,
            store=store,
            daemon_log=self._log,
            slots=self._slots,
            clock=clock,
            drain=self._drain,
            report=self._report,
            hold=self._hold,
        )
        self._holding = Holding(
            entries=self._entries,
            store=store,
            daemon_log=self._log,
            hold=self._hold,
            admission=self._admission,
            end_leftovers=partial(self._sweeping.end_leftovers, self._entries),
        )
        self._control = Control(
            store=store,
            clock=clock,
            daemon_log=self._log,
            enter=self._admission.enqueue,
            sweep=self._sweeping.sweep,
            observe=self._observe,
        )
        self._starting = Starting(
            entries=self._entries,
            store=store,
            models=self.models,
            workspaces=self._workspaces,
            clock=clock,
            agent_dirs=tuple(self.agent_dirs),
            default_agent=self.default_agent,
            drain=self._drain,
            enter=self._admission.enqueue,
        )
        self._reading = Reading(self._entries, store)

    def _worker(self) -> Worker:
        return Worker(
            store=self.store,
            spawner=self.spawner,
            tools=self.tools,
            models=self.models,
            clock=self.clock,
            random=Random(),  # noqa: S311  # jitter, no secret
            claimant=self.claimant,
            pacer=Pacer(self.entry_rate, self.clock),
            daemon_log=self._log,
            report=self._report,
            hold=self._hold,
            drain=self._drain,
            waking=self._waking,
            workspaces=self._workspaces,
            sweep=self._sweeping.sweep,
            orphan_grace_s=self.orphan_grace_s,
            observe=self._observe,
        )

    def _observe(self) -> Saw:
        return Observed(self.meter, self.clock.now, self.saw())

    def _tell(self, entry: Entry) -> None:
        """Tell those who listen what has become of a run, and those who are told of questions which it asks."""
        self._news.tell(entry)
        self.on_questions(entry.open_questions())

    def configure(self, *, max_active_runs: int, default_agent: str) -> None:
        """Take settings that can change while runs work."""
        self._slots.resize(max_active_runs)
        self._starting.default_agent = default_agent

    # Life

    async def boot(self, progress: Callable[[str], None] = lambda _said: None, *, hold: bool = False) -> None:
        """List the runs and end what belongs to none that lives; nothing is entered yet.

        With `hold`, or where something else holds the runs, nothing is ended either. `progress` is told whenever
        another piece is done. Cancelling it is a stop: nothing works that could be interrupted.
        """
        with anyio.CancelScope(shield=True):  # whoever has noted a start is the one that must note the stop
            decided = await self._log.begin()
        try:
            await self._list(decided, progress, asked_to_hold=hold)
            # What came while its last piece was done in a thread is heard here: afterwards nobody would note the stop.
            await anyio.lowlevel.checkpoint_if_cancelled()
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await self._note_stop()
            raise

    async def _list(self, decided: StartDecision, progress: Callable[[str], None], *, asked_to_hold: bool) -> None:
        await self._holding.begin(decided, asked=asked_to_hold)
        self.meter.add("onward_runs_quarantined_total", len(decided.blamed))
        self._admission.prepare(decided)
        await Finding(self._entries, self.store, self._log, self._report).find(progress)
        ended = 0 if self._hold.on else await self._sweeping.end_leftovers(self._entries)
        log.info("runs listed", runs=len(self._entries), to_enter=self.recovering, leftovers_ended=ended)
        self._report.tell()

    async def serve(self) -> None:
        """Let runs work until `stop`, then drain. Cancelling it is a crash as far as the runs are concerned."""
        indexes = partial(
            keep_indexes, self._entries, clock=self.clock, grace=self._grace, sweeping=self._sweeping, news=self._news
        )
        async with anyio.create_task_group() as tasks:
            self._admission.begin(tasks)
            tasks.start_soon(self._admission.serve)
            tasks.start_soon(indexes)
            for entry in list(self._entries.values()):
                self.on_questions(entry.questions)
            await self._stopped.wait()
            await self._finish_drain()
            tasks.cancel_scope.cancel()
        await self._note_stop()

    async def stop(self, *, leave_running: bool) -> None:
        if not self._drain.on:
            log.info("draining", leave_running=leave_running, working=self._admission.working)
            self._drain.on, self._drain.leave_running = True, leave_running
            for entry in self._entries.values():
                if entry.loaded is not None and entry.loaded.native is not None:
                    entry.loaded.native.drain(leave_running=leave_running)
            self._stopped.set()

    async def draining(self) -> None:
        """Return as soon as a stop was asked for."""
        await self._stopped.wait()

    async def _finish_drain(self) -> None:
        """Wait for the runs to come to rest; one that cannot (a full disk, say) is left as a crash would leave it."""
        with anyio.move_on_after(DRAIN_S):
            await self._admission.drained()
        if self._admission.working:
            log.warning("not all runs came to rest in time", working=self._admission.working)

    async def _note_stop(self) -> None:
        await self._log.note("DaemonStopped", pid=os.getpid())

    # What is told of the daemon

    @property
    def recovering(self) -> int:
        """How many runs found at the start were not looked at yet."""
        return len(self._report.waits_for)

    @property
    def summary(self) -> str:
        """What is being done, in a few words."""
        if self._drain.on:
            return f"stopping: {self._admission.working} runs come to rest"
        config = "" if self.configuration.to_json()["ok"] else "; the configuration is wrong: see onward status"
        return f"{self._admission.working} of {len(self._entries)} runs work, {self.recovering} to be recovered{config}"

    async def daemon(self) -> Json:
        return {
            "version": __version__,
            "pid": os.getpid(),
            "instance": self.store.instance,
            "uptime_s": round(self.clock.monotonic() - self._began, 1),
            "runs": dict(self._entries.statuses()),
            "ready": True,
            "draining": self._drain.on,
            "hold": self._holding.to_json(),
            "recovery": self._report.to_json(),
            "limits": {"max_active_runs": self._slots.number},
            "isolation": self.isolation,
            "config": self.configuration.to_json(),
        }

    def metrics(self) -> str:
        statuses = self._entries.statuses()
        shown = self.meter.show
        shown("onward_build_info", {(__version__,): 1})
        shown("onward_runs", {(status,): statuses[status] for status in {*Status, *statuses}})
        shown("onward_questions_open", {(): sum(len(entry.open_questions()) for entry in self._entries.values())})
        shown("onward_configuration_ok", {(): float(self.configuration.to_json()["ok"])})
        shown("onward_recovery_seconds", {} if self._report.took_s is None else {(): self._report.took_s})
        return self.meter.render()

    async def agents(self) -> Json:
        return await self._starting.agents()

    # What is done to it

    async def reload(self) -> Json:
        await self.configuration.reload()
        return self.configuration.to_json()

    async def hold(self, *, by: str, reason: str = "") -> Json:
        await self._holding.hold(by=by, reason=reason)
        return await self.daemon()

    async def release(self, run_id: str | None = None, *, by: str) -> Json:
        await self._holding.release(None if run_id is None else self._entries.of(run_id), by=by)
        return await self.daemon()

    # What is told of runs

    async def list_runs(self, statuses: frozenset[str] | None = None) -> list[Json]:
        return self._reading.list_runs(statuses)

    async def get_run(self, run_id: str) -> Json:
        return await self._reading.get_run(run_id)

    async def records(self, run_id: str, *, after: int = 0, limit: int = 1000) -> list[Json]:
        return await self._reading.records(run_id, after=after, limit=limit)

    async def interactions(self, run_id: str | None = None) -> list[Json]:
        return self._reading.interactions(run_id)

    def watch(self, run_id: str, *, after: int = 0, deltas: bool = False) -> AsyncIterator[Json]:
        return self._reading.watch(run_id, after=after, deltas=deltas)

    def watch_all(self, *, after: str | None = None) -> AsyncIterator[Json]:
        return self._news.after(after)

    # What is done to them

    async def start_run(self, request: StartRequest) -> tuple[Json, bool]:
        return await self._starting.start_run(request)

    async def send(self, run_id: str, text: str, *, by: str, message_id: str | None = None) -> Json:
        message_id = message_id or f"m-{secrets.token_hex(8)}"
        return await self._control.send(self._entries.of(run_id), text, by=by, message_id=message_id)

    async def answer(self, run_id: str, interaction_id: str, answer: Json, *, by: str) -> Json:
        return await self._control.answer(self._entries.of(run_id), interaction_id, answer, by=by)

    async def pause(self, run_id: str, *, by: str, reason: str = "") -> Json:
        return await self._control.pause(self._entries.of(run_id), by=by, reason=reason)

    async def resume(self, run_id: str, *, by: str, add: Json | None = None) -> Json:
        return await self._control.resume(self._entries.of(run_id), by=by, add=add or {})

    async def cancel(self, run_id: str, *, by: str) -> Json:
        return await self._control.cancel(self._entries.of(run_id), by=by)

    async def revive(self, run_id: str, *, by: str, max_revivals: int | None = None) -> Json:
        return await self._control.revive(self._entries.of(run_id), by=by, max_revivals=max_revivals)
