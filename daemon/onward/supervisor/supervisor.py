"""The supervisor: which runs there are, which of them work, and what can be asked about them.

There is one way in: first start, recovery at boot and every later return pass through the queue and `Worker.work`.
"""

import os
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random

import anyio
import structlog

from onward import __version__
from onward.config.agents import AgentDefinition, load_agents
from onward.core.daemon_facts import READ, StartDecision
from onward.core.fold import NewerRecord, apply
from onward.core.ids import make_run_id, parse_run_id
from onward.core.index import index_of, view_of
from onward.core.records import BadRecord, Json, RunStarted
from onward.core.replay import NotAJournal
from onward.core.state import RunState
from onward.core.status import TERMINAL, Status
from onward.errors import BadRequest, Conflict, NotFound, OnwardError, Refused, StoreError
from onward.ports.clock import Clock
from onward.ports.operations import StartRequest
from onward.ports.process import ProcessSpawner
from onward.ports.store import Listed, RunStore
from onward.ports.tool import Tool
from onward.recovery.recover import Claimant
from onward.supervisor.admission import Admission
from onward.supervisor.configuration import AsStarted, Configuration
from onward.supervisor.control import Control
from onward.supervisor.daemon_log import DaemonLog
from onward.supervisor.drain import Drain
from onward.supervisor.entries import Entry
from onward.supervisor.grace import Grace
from onward.supervisor.holding import Holding
from onward.supervisor.metrics import Meter
from onward.supervisor.models import Models
from onward.supervisor.observed import Observed, Saw, nobody
from onward.supervisor.report import Report
from onward.supervisor.slots import Pacer, Slots
from onward.supervisor.starting import request_hash, started
from onward.supervisor.sweeping import Sweeping
from onward.supervisor.waking import Waking
from onward.supervisor.watching import News, follow
from onward.supervisor.worker import Worker

log = structlog.get_logger()

INDEX_EVERY_S = 1.0
DRAIN_S = 45.0
SAID_EVERY = 100
"""Runs that are looked at between two words about it."""
_RESTING = frozenset({Status.PAUSED, Status.PARKED, Status.QUARANTINED, *TERMINAL})


class Supervisor:
    """Implements `onward.ports.operations.Operations`. `boot`, then `serve` until `stop`."""

    def __init__(
        self,
        *,
        store: RunStore,
        spawner: ProcessSpawner,
        tools: dict[str, Tool],
        models: Models,
        clock: Clock,
        claimant: Claimant,
        agent_dirs: Sequence[Path],
        configuration: Configuration | None = None,
        on_questions: Callable[[Sequence[Json]], None] = lambda _questions: None,
        default_agent: str = "worker",
        max_active_runs: int = 50,
        entry_rate: float = 20.0,
        orphan_grace_s: float = 600.0,
        isolation: Json | None = None,
        meter: Meter | None = None,
        saw: Callable[[], Saw] = lambda: nobody,
    ) -> None:
        self._store = store
        self._spawner = spawner
        self._isolation = isolation
        self._meter = meter or Meter()
        self._models = models
        self._clock = clock
        self._agent_dirs = tuple(agent_dirs)
        self._default_agent = default_agent
        self._entries: dict[str, Entry] = {}
        self._keys: dict[str, str] = {}
        self._starting: dict[str, anyio.Lock] = {}
        self._slots = Slots(max_active_runs)
        self._news = News()
        self._report = Report()
        self._on_questions = on_questions
        self._configuration = configuration or AsStarted()
        observe = partial(_observed, self._meter, clock, saw)
        self._drain = Drain()
        self._log = DaemonLog(store, clock, claimant)
        self._stopped = anyio.Event()
        self._began = clock.monotonic()
        self._grace = Grace(clock)
        self._sweeping = Sweeping(store=store, spawner=spawner)
        waking = Waking(clock, self._grace, self._drain)
        worker = Worker(
            store=store,
            spawner=spawner,
            tools=tools,
            models=models,
            clock=clock,
            random=Random(),  # noqa: S311  # jitter, no secret
            claimant=claimant,
            pacer=Pacer(entry_rate, clock),
            daemon_log=self._log,
            report=self._report,
            drain=self._drain,
            orphan_grace_s=orphan_grace_s,
            waking=waking,
            sweep=self._sweeping.sweep,
            observe=observe,
        )
        self._admission = Admission(
            entries=self._entries,
            worker=worker,
            waking=waking,
            store=store,
            daemon_log=self._log,
            slots=self._slots,
            clock=clock,
            drain=self._drain,
            report=self._report,
        )
        self._holding = Holding(
            entries=self._entries,
            store=store,
            daemon_log=self._log,
            admission=self._admission,
            end_leftovers=partial(self._sweeping.end_leftovers, self._entries),
        )
        self._control = Control(
            store=store, clock=clock, enter=self._admission.enqueue, sweep=self._sweeping.sweep, observe=observe
        )

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
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await self._note_stop()
            raise

    async def _list(self, decided: StartDecision, progress: Callable[[str], None], *, asked_to_hold: bool) -> None:
        await self._holding.begin(decided, asked=asked_to_hold)
        self._meter.add("onward_runs_quarantined_total", len(decided.blamed))
        self._admission.prepare(decided)
        listed = await self._store.list_runs()
        progress(f"{len(listed)} runs listed")
        for number, run in enumerate(listed, 1):
            await self._found(run)
            if number % SAID_EVERY == 0:
                progress(f"{number} of {len(listed)} runs looked at")
        ended = 0 if self._admission.hold.on else await self._sweeping.end_leftovers(self._entries)
        log.info("runs listed", runs=len(listed), to_enter=len(self._report.waits_for), leftovers_ended=ended)
        self._report.tell()

    async def serve(self) -> None:
        """Let runs work until `stop`, then drain. Cancelling it is a crash as far as the runs are concerned."""
        async with anyio.create_task_group() as tasks:
            self._admission.begin(tasks)
            tasks.start_soon(self._admission.serve)
            tasks.start_soon(self._write_indexes)
            for entry in list(self._entries.values()):
                self._on_questions(entry.questions)
            await self._stopped.wait()
            await self._finish_drain()
            tasks.cancel_scope.cancel()
        await self._note_stop()

    async def _note_stop(self) -> None:
        await self._log.note("DaemonStopped", pid=os.getpid())

    def metrics(self) -> str:
        statuses = Counter(str(entry.shown()["status"]) for entry in self._entries.values())
        shown = self._meter.show
        shown("onward_build_info", {(__version__,): 1})
        shown("onward_runs", {(status,): statuses[status] for status in {*Status, *statuses}})
        shown("onward_questions_open", {(): sum(len(entry.open_questions()) for entry in self._entries.values())})
        shown("onward_configuration_ok", {(): float(self._configuration.to_json()["ok"])})
        shown("onward_recovery_seconds", {} if self._report.took_s is None else {(): self._report.took_s})
        return self._meter.render()

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

    @property
    def recovering(self) -> int:
        """How many runs found at the start were not looked at yet."""
        return len(self._report.waits_for)

    @property
    def summary(self) -> str:
        """What is being done, in a few words."""
        if self._drain.on:
            return f"stopping: {self._admission.working} runs come to rest"
        config = "" if self._configuration.to_json()["ok"] else "; the configuration is wrong: see onward status"
        return f"{self._admission.working} of {len(self._entries)} runs work, {self.recovering} to be recovered{config}"

    # Operations

    async def start_run(self, request: StartRequest) -> tuple[Json, bool]:
        key = request.idempotency_key
        if key is None:
            return await self._start(request), True
        async with self._starting.setdefault(key, anyio.Lock()):
            try:
                if (known := self._entries.get(self._keys.get(key, ""))) is None:
                    return await self._start(request), True
            finally:
                if not self._starting[key].statistics().tasks_waiting:
                    del self._starting[key]
        first = [] if known.suspended else await self._store.records(known.run_id, after=0, limit=1)
        if first and first[0].get("request_hash") != request_hash(request):
            raise Conflict(f"the idempotency key {key!r} was used for another request, which started {known.run_id}")
        return known.shown(), False

    async def list_runs(self, statuses: frozenset[str] | None = None) -> list[Json]:
        shown = [entry.shown() for entry in self._entries.values()]
        chosen = [index for index in shown if statuses is None or index["status"] in statuses]
        return sorted(chosen, key=lambda index: (str(index.get("created_at", "")), index["run_id"]), reverse=True)

    async def get_run(self, run_id: str) -> Json:
        entry = self._entry(run_id)
        if entry.loaded is not None:
            return view_of(entry.loaded.live.state, entry.shown())
        if entry.suspended is not None:
            return entry.shown()
        try:
            replay = await self._store.read(run_id)
        except (NotAJournal, NewerRecord) as error:
            return {**entry.shown(), "error": str(error)}
        return view_of(replay.state, entry.shown())

    async def records(self, run_id: str, *, after: int = 0, limit: int = 1000) -> list[Json]:
        entry = self._entry(run_id)
        if entry.suspended is not None:
            raise Conflict(f"{run_id} is quarantined: {entry.suspended}. Bring it back: onward revive {run_id}")
        up_to = entry.loaded.live.durable_seq if entry.loaded is not None else None
        return await self._store.records(run_id, after=after, limit=limit, up_to=up_to)

    async def send(self, run_id: str, text: str, *, by: str, message_id: str | None = None) -> Json:
        message_id = message_id or f"m-{secrets.token_hex(8)}"
        return await self._control.send(self._entry(run_id), text, by=by, message_id=message_id)

    async def pause(self, run_id: str, *, by: str, reason: str = "") -> Json:
        return await self._control.pause(self._entry(run_id), by=by, reason=reason)

    async def resume(self, run_id: str, *, by: str, add: Json | None = None) -> Json:
        return await self._control.resume(self._entry(run_id), by=by, add=add or {})

    async def cancel(self, run_id: str, *, by: str) -> Json:
        return await self._control.cancel(self._entry(run_id), by=by)

    async def revive(self, run_id: str, *, by: str, max_revivals: int | None = None) -> Json:
        entry = self._entry(run_id)
        reason = self._log.facts.suspended.get(run_id)
        if reason is None:
            return await self._control.revive(entry, by=by, max_revivals=max_revivals)
        entry.suspended = None
        try:
            async with self._log.naming(run_id, READ):
                told = await self._control.write_revival(entry, by=by, max_revivals=max_revivals, why=reason)
            await self._log.end_quarantine(run_id, by=by)  # before it is entered: then it is named again
        except OnwardError:
            entry.suspended = reason if entry.loaded is None and not entry.queued else None
            raise
        return self._control.enter_revived(entry, told, suspended=True)

    async def interactions(self, run_id: str | None = None) -> list[Json]:
        entries = self._entries.values() if run_id is None else [self._entry(run_id)]
        questions = [question for entry in entries for question in entry.open_questions()]
        return sorted(questions, key=lambda question: (question["asked_at"], question["run_id"]))

    async def answer(self, run_id: str, interaction_id: str, answer: Json, *, by: str) -> Json:
        return await self._control.answer(self._entry(run_id), interaction_id, answer, by=by)

    async def agents(self) -> Json:
        found, problems = await anyio.to_thread.run_sync(load_agents, self._agent_dirs)
        shown = [
            {"name": name, "kind": agent.kind, "description": agent.description, "model": agent.model}
            for name, agent in sorted(found.items())
        ]
        told = [problem.to_json() for problem in problems]
        return {"agents": shown, "default": self._default_agent, "problems": told}

    async def reload(self) -> Json:
        await self._configuration.reload()
        return self._configuration.to_json()

    def configure(self, *, max_active_runs: int, default_agent: str) -> None:
        """Take settings that can change while runs work."""
        self._slots.resize(max_active_runs)
        self._default_agent = default_agent

    def watch(self, run_id: str, *, after: int = 0, deltas: bool = False) -> AsyncIterator[Json]:
        async def read(seq: int, limit: int) -> list[Json]:
            return await self.records(run_id, after=seq, limit=limit)

        return follow(self._entry(run_id), read, after=after, deltas=deltas)

    def watch_all(self, *, after: str | None = None) -> AsyncIterator[Json]:
        return self._news.after(after)

    async def hold(self, *, by: str, reason: str = "") -> Json:
        await self._holding.hold(by=by, reason=reason)
        return await self.daemon()

    async def release(self, run_id: str | None = None, *, by: str) -> Json:
        await self._holding.release(None if run_id is None else self._entry(run_id), by=by)
        return await self.daemon()

    async def daemon(self) -> Json:
        counts = Counter(str(entry.shown()["status"]) for entry in self._entries.values())
        return {
            "version": __version__,
            "pid": os.getpid(),
            "instance": self._store.instance,
            "uptime_s": round(self._clock.monotonic() - self._began, 1),
            "runs": dict(counts),
            "ready": True,
            "draining": self._drain.on,
            "hold": self._holding.to_json(),
            "recovery": self._report.to_json(),
            "limits": {"max_active_runs": self._slots.number},
            "isolation": self._isolation,
            "config": self._configuration.to_json(),
        }

    # Inside

    def _tell(self, entry: Entry) -> None:
        """Tell those who listen what has become of a run, and those who are told of questions which it asks."""
        self._news.tell(entry)
        self._on_questions(entry.open_questions())

    def _entry(self, run_id: str) -> Entry:
        try:
            return self._entries[parse_run_id(run_id)]
        except (KeyError, BadRequest):
            raise NotFound(f"there is no run {run_id[:80]!r}") from None

    async def _found(self, run: Listed) -> None:
        suspended = self._log.facts.suspended.get(run.run_id)
        known = run.index or run.stale_index or (None if run.problem else await self._as_started(run.run_id))
        index = known or {"run_id": run.run_id, "status": Status.ACTIVE}
        index.pop("journal", None)  # where the file stood when it was written: nothing to be shown
        entry = self._entries[run.run_id] = Entry(
            run_id=run.run_id,
            index=index,
            problem=run.problem,
            questions=run.questions,
            suspended=suspended,
            suspect=run.index.get("suspect") if run.index is not None else None,
            on_change=self._tell,
        )
        if type(key := index.get("idempotency_key")) is str:
            self._keys[key] = run.run_id
        if suspended is not None:
            self._report.waits_for.add(run.run_id)
            self._report.add("quarantined", run.run_id, suspended)
        elif run.problem is not None:
            self._report.waits_for.add(run.run_id)
            self._report.add("damaged", run.run_id, run.problem)
        elif run.index is None or (run.index["status"] not in _RESTING and run.index.get("waiting_on") != "human"):
            entry.queued = True
            self._report.waits_for.add(run.run_id)
        elif run.index["status"] not in TERMINAL:
            self._report.waits_for.add(run.run_id)
            self._report.add(str(run.index["status"]), run.run_id, str(run.index.get("error") or "waits for a human"))

    async def _as_started(self, run_id: str) -> Json | None:
        """Return the index that a run without one began with: whoever repeats its start must be told of it."""
        try:
            first = await self._store.records(run_id, after=0, limit=1)
            return _first_index(first[0]) if first and first[0]["type"] == "RunStarted" else None
        except (StoreError, NotFound, BadRecord, NewerRecord):
            return None

    async def _start(self, request: StartRequest) -> Json:
        if self._drain.on:
            raise Refused("the daemon is being stopped; start the run again when it is back")
        name = request.agent or self._default_agent
        record = await anyio.to_thread.run_sync(self._first_record, request, name)
        await self._store.create(record)
        run_id = record.run_id
        entry = self._entries[run_id] = Entry(run_id=run_id, index=_first_index(record.to_json()), on_change=self._tell)
        if request.idempotency_key is not None:
            self._keys[request.idempotency_key] = run_id
        self._admission.enqueue(entry)
        return entry.shown()

    def _first_record(self, request: StartRequest, name: str) -> RunStarted:
        """Return what a run of this agent begins with. Blocks."""
        definition = self._agent(name)
        model = self._models.check(request.model or definition.model, definition.fallback)
        run_id = make_run_id(name, int(self._clock.now().timestamp() * 1000), secrets.randbits(40))
        return started(run_id, request, name, definition, model)

    def _agent(self, name: str) -> AgentDefinition:
        agents, problems = load_agents(self._agent_dirs)
        if (found := agents.get(name)) is not None:
            return found
        wrong = [str(problem) for problem in problems if problem.file.stem == name]
        if wrong:
            raise BadRequest(f"the agent {name!r} cannot be used: " + "; ".join(wrong))
        raise NotFound(f"there is no agent {name[:40]!r}; known: {', '.join(sorted(agents))}")

    async def _write_indexes(self) -> None:
        """Keep meta.json of working runs at most a second behind."""
        while True:
            await self._clock.sleep(INDEX_EVERY_S)
            self._grace.left_s()  # a clock that was moved is to be noticed before it matters
            for entry in list(self._entries.values()):
                loaded = entry.loaded
                # Of one that has ended the index comes after its evidence is removed: nobody looks behind it again.
                if loaded is None or not loaded.index_dirty or loaded.live.state.status in TERMINAL:
                    continue
                loaded.index_dirty = False
                try:
                    self._news.tell(entry)
                    await loaded.live.write_index()
                    await self._sweeping.sweep(loaded.live)
                except StoreError as error:
                    if entry.loaded is loaded:  # else it came to rest meanwhile, and its index is written there
                        log.warning("index not written", run_id=entry.run_id, error=str(error))

    async def _finish_drain(self) -> None:
        """Wait for the runs to come to rest; one that cannot (a full disk, say) is left as a crash would leave it."""
        with anyio.move_on_after(DRAIN_S):
            await self._admission.drained()
        if self._admission.working:
            log.warning("not all runs came to rest in time", working=self._admission.working)


def _observed(meter: Meter, clock: Clock, saw: Callable[[], Saw]) -> Saw:
    return Observed(meter, clock.now, saw())


def _first_index(record: Json) -> Json:
    state = RunState()
    apply(state, {**record, "seq": 1})
    return index_of(state)
