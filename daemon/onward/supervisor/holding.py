"""Holding all runs back, and releasing them: for an upgrade, in a copy or a restored backup, in a crash loop."""

from collections.abc import Awaitable, Callable, Mapping

import structlog

from onward.core.daemon_facts import COPY, ELSEWHERE, StartDecision
from onward.core.records import Json
from onward.core.text import clean
from onward.ports.store import RunStore
from onward.supervisor.admission import Admission
from onward.supervisor.daemon_log import DaemonLog
from onward.supervisor.entries import Entry
from onward.supervisor.hold import Hold

log = structlog.get_logger()

ASKED = "asked"


class Holding:
    """What holds the runs of this daemon; `end_leftovers` ends processes that belong to no call of a run."""

    def __init__(
        self,
        *,
        entries: Mapping[str, Entry],
        store: RunStore,
        daemon_log: DaemonLog,
        hold: Hold,
        admission: Admission,
        end_leftovers: Callable[[], Awaitable[int]],
    ) -> None:
        self._entries = entries
        self._store = store
        self._log = daemon_log
        self._hold = hold
        self._admission = admission
        self._end_leftovers = end_leftovers

    async def begin(self, decided: StartDecision, *, asked: bool) -> None:
        """Hold the runs, where something says so at the start."""
        reasons = self._hold.reasons
        if decided.held is not None:
            reasons[decided.held] = decided.reason
        if (why := await self._store.hold()) is not None or asked:
            reasons[ASKED] = why or "asked for at the start"
        if reasons:
            log.warning("runs are held", reasons=reasons)
        elif self._log.facts.let_go:
            await self._log.note("HeldAnew")  # whatever it was is over: the next hold holds those runs too

    async def hold(self, *, by: str, reason: str) -> None:
        """Let no run be entered any more, over restarts too."""
        why = clean(reason) or f"asked for by {by}"
        await self._log.hold_anew()
        await self._store.set_hold(why)
        self._hold.reasons[ASKED] = why
        log.warning("runs are held", by=by, reason=why)

    async def release(self, entry: Entry | None, *, by: str) -> None:
        """Let one run go on, or all; durable when it returns."""
        await self._become_another()
        if entry is None:
            await self._release_all(by=by)
            return
        if entry.held is not None or self._hold.on:
            await self._log.release(entry.run_id, by=by)
        self._admission.let_go(entry)

    async def _release_all(self, *, by: str) -> None:
        for entry in list(self._entries.values()):
            if entry.held == ELSEWHERE:
                await self._log.release(entry.run_id, by=by)
        if self._hold.on:
            await self._log.release_all(by=by)
            await self._store.set_hold(None)
            if not self._admission.working:  # else one was released before: what it has just started is its own
                await self._end_leftovers()
            log.info("runs are released", by=by)
        self._admission.let_all_go()

    async def _become_another(self) -> None:
        """Let a copied runs directory have its own id: whatever runs for the one it was copied from is a stranger.

        It comes first: whoever dies before the release is noted gets one more new id, and nothing was entered.
        """
        if COPY in self._hold.reasons and self._log.here not in self._log.facts.released.values():
            await self._store.renew_instance()

    def to_json(self) -> Json:
        held = sum(entry.held is not None for entry in self._entries.values())
        return {"on": self._hold.on, "reasons": dict(self._hold.reasons), "runs": held}
