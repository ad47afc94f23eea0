"""One run comes to work: opened, recovered, driven, closed. Whatever goes wrong in it stays in it."""

import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import anyio
import structlog

from onward.core.daemon_facts import ELSEWHERE, is_copy, was_elsewhere
from onward.core.fold import NewerRecord
from onward.core.plan import Verdict
from onward.core.records import RunParked, RunQuarantined, RunResumed
from onward.core.replay import NotAJournal
from onward.core.state import RunState
from onward.core.status import Status
from onward.core.step import may_enter, parking
from onward.core.times import stamp
from onward.core.vocabulary import Needs
from onward.errors import NotFound, StoreError, Unreadable, causes_of
from onward.native.mcp.place import Place, Unavailable, know_values
from onward.native.mcp.tools import mcp_tools
from onward.native.ports import RunPorts
from onward.native.run import NativeRun
from onward.ports.clock import Clock
from onward.ports.process import ProcessSpawner
from onward.ports.store import Beside, RunStore
from onward.ports.tool import Tool
from onward.recovery.recover import Claimant, recover
from onward.supervisor.daemon_log import DaemonLog
from onward.supervisor.drain import Drain
from onward.supervisor.entries import Entry, Loaded
from onward.supervisor.hold import Hold
from onward.supervisor.live import LiveRun
from onward.supervisor.models import Models
from onward.supervisor.observed import Saw
from onward.supervisor.report import Report
from onward.supervisor.slots import Pacer, Slot
from onward.supervisor.waking import Waking
from onward.supervisor.workspaces import Workspaces
from onward.testing import faults

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """Everything that working on runs needs."""

    store: RunStore
    spawner: ProcessSpawner
    tools: Mapping[str, Tool]
    models: Models
    clock: Clock
    random: Random
    claimant: Claimant
    pacer: Pacer
    daemon_log: DaemonLog
    report: Report
    hold: Hold
    drain: Drain
    waking: Waking
    workspaces: Workspaces
    sweep: Callable[[LiveRun], Awaitable[None]]
    """Removes the evidence of settled calls."""
    orphan_grace_s: float
    observe: Callable[[], Saw]
    """Makes what is told the records of one run."""

    async def work(self, entry: Entry, slot: Slot) -> float | None:
        """Work on a run until it rests; returns after how many seconds it is to be tried again, or None.

        Never raises for what is wrong with the run: that is shown in `entry`.
        """
        with structlog.contextvars.bound_contextvars(run_id=entry.run_id):
            async with entry.lock:
                try:
                    await self._open_and_work(entry, slot)
                except (NotAJournal, NotFound) as error:
                    self._damaged(entry, str(error))
                except Unreadable as error:
                    self._damaged(entry, str(error))
                    return self.waking.disk_failed(entry)
                except NewerRecord as error:
                    self._newer(entry, str(error))
                except Exception as error:  # noqa: BLE001  # the border of one run: the others go on
                    return self._failed(entry, error)
                return self.waking.come_to_rest(entry)

    async def _open_and_work(self, entry: Entry, slot: Slot) -> None:
        run_log = await self.store.open(entry.run_id)
        entry.problem = None
        if (torn := run_log.beside.torn) is not None:
            log.warning("torn end of the journal set aside", file=torn)
        live = LiveRun(run_log, self.store, self.clock, lambda: _changed(entry), self.observe())
        run_log.on_durable = lambda _seq: entry.notify()
        entry.loaded = Loaded(live)
        entry.notify()
        try:
            await self._enter(entry, live, slot, run_log.beside)
        except Exception as error:
            if all(isinstance(cause, StoreError) for cause in causes_of(error)):
                raise
            await self._quarantine(live, error)
        finally:
            with anyio.CancelScope(shield=True):
                await self._unload(entry, live)

    async def _enter(self, entry: Entry, live: LiveRun, slot: Slot, beside: Beside) -> None:
        state = live.state
        if self._is_elsewhere(entry, state) or not await self._goes_on(entry, live):
            self.report.count(state, None)
            return
        if was_elsewhere(state, self.daemon_log.here):  # these calls belong to another daemon, which may live
            await self.store.set_call_dirs_aside(entry.run_id)
            beside = replace(beside, call_dirs=())
        know_values(state.agent, os.environ, self.store.secrets)  # before what its commands printed is written down
        decided = await recover(live, self.store, self.spawner, self.claimant, beside)
        self.report.count(state, decided)
        if beside.call_dirs:
            await self.sweep(live)
        if decided.verdict not in (Verdict.ENTER, Verdict.ASK):
            return
        if self.drain.on:  # it is claimed: without a word that it was let go of, the next daemon would see a crash
            await self._drive(entry, live, slot, decided.adopt, self.tools)
            return
        if decided.revived is not None:
            log.info("run revived", cause=decided.revived.cause, settled=len(decided.settlements))
        faults.hit_of("run.enter", entry.run_id)
        try:
            async with mcp_tools(state.agent, self._place(state)) as more:
                await self._drive(entry, live, slot, decided.adopt, dict(self.tools) | more)
        except Unavailable as error:
            await self._park(entry, live, error.needs, str(error))

    def _is_elsewhere(self, entry: Entry, state: RunState) -> bool:
        """Hold a run back that was worked on in another place."""
        enters = may_enter(state, stamp(self.clock.now()))
        if enters and is_copy(state, self.daemon_log.here, self.daemon_log.facts):
            entry.held = ELSEWHERE
            self.report.add("held", entry.run_id, ELSEWHERE)
        return entry.held is not None

    async def _goes_on(self, entry: Entry, live: LiveRun) -> bool:
        state = live.state
        if self.drain.on or not may_enter(state, stamp(self.clock.now())):
            return False
        if state.cancel_by is not None:
            return True
        if entry.run_id in self.report.waits_for:
            await self.pacer.wait()  # before anything is written: one that still waits here is charged nothing
            if self.hold.holds_back(entry):
                return False
        return not self.drain.on and await self._has_workspace(entry, live)

    def _place(self, state: RunState) -> Place:
        return Place(
            instance=self.store.instance,
            run_id=state.run_id,
            workspace=Path(state.workspace),
            environment=os.environ,
            secrets=self.store.secrets,
            clock=self.clock,
        )

    async def _drive(
        self, entry: Entry, live: LiveRun, slot: Slot, adopt: tuple[str, ...], tools: Mapping[str, Tool]
    ) -> None:
        ports = RunPorts(
            store=self.store,
            load_model=self.models.load,
            tools=tools,
            spawner=self.spawner,
            clock=self.clock,
            random=self.random,
            idle=slot.released,
            on_delta=entry.tell_delta,
            orphan_grace_s=self.orphan_grace_s,
            may_expire=self.waking.may_expire,
        )
        native = NativeRun(live, ports, adopt=adopt)
        if entry.loaded is not None:
            entry.loaded.native = native
        native.obey()  # whatever was written before it was there to be told
        if self.drain.on:
            native.drain(leave_running=self.drain.leave_running)
        await native.drive()

    async def _has_workspace(self, entry: Entry, live: LiveRun) -> bool:
        """Park the run while its workspace is away; let it go on from where it was parked for something else."""
        state = live.state
        seen = await self.workspaces.look_at(state.workspace)
        if seen is not None and seen.is_dir and (seen.is_mount or not state.workspace_is_mount):
            if state.status is Status.PARKED:
                await live.append_durably(RunResumed(by="daemon", reason="its time has come"))
            return True
        wrong = "does not answer" if seen is None else "is not mounted" if seen.is_dir else "is not there"
        await self._park(entry, live, Needs.WORKSPACE, f"the workspace {state.workspace!r} {wrong}")
        return False

    async def _park(self, entry: Entry, live: LiveRun, needs: Needs, reason: str) -> None:
        parked = RunParked(by="daemon", reason=reason, needs=needs, retry_at=self.waking.park_until(entry))
        await live.act(lambda: parking(live.state, parked))

    async def _quarantine(self, live: LiveRun, error: Exception) -> None:
        log.error("run quarantined", error=str(error), exc_info=error)
        await live.append_durably(RunQuarantined(by="daemon", reason=f"an error in Onward: {error!r}"))

    async def _unload(self, entry: Entry, live: LiveRun) -> None:
        """Write the index and let go. What fails here is only a cache: the run is folded the next time."""
        # From here on an op opens the run anew; what is shown meanwhile is not older than what was shown before.
        entry.index, entry.loaded = live.index(), None
        try:
            await live.flush()
            await self.sweep(live)
            await live.write_index()
        except StoreError as error:
            log.warning("index not written", error=str(error))
        finally:
            entry.keep(live.state)
            with suppress(StoreError):
                await live.close()
            entry.notify()

    def _damaged(self, entry: Entry, problem: str) -> None:
        entry.problem = problem
        self.report.add("damaged", entry.run_id, problem)
        log.error("run damaged", reason=problem)
        entry.notify()

    def _newer(self, entry: Entry, reason: str) -> None:
        shown = {"run_id": entry.run_id, "status": Status.PARKED, "needs": Needs.NEWER_VERSION, "error": reason}
        entry.index = {**entry.index, **shown}
        self.report.add("parked", entry.run_id, reason)
        entry.notify()

    def _failed(self, entry: Entry, error: Exception) -> float | None:
        """Tell a disk that fails (tried again) from a bug (quarantined in memory until the next start)."""
        causes = causes_of(error)
        if all(isinstance(cause, StoreError) for cause in causes):
            status, needs = Status.PARKED, Needs.DISK
            again: float | None = self.waking.disk_failed(entry)
        else:
            status, needs, again = Status.QUARANTINED, None, None
        reason = "; ".join(dict.fromkeys(str(cause) or repr(cause) for cause in causes))
        log.error("run stopped by an error", status=status, error=reason, exc_info=error)
        entry.index = {**entry.index, "status": status, "needs": needs, "error": reason}
        self.report.add(str(status), entry.run_id, reason)
        entry.notify()
        return again


def _changed(entry: Entry) -> None:
    if entry.loaded is not None:
        entry.loaded.index_dirty = True
