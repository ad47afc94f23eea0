"""daemon.jsonl as a daemon uses it: read at its start, added to while it lives. No failure of it stops anything."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import structlog

from onward import __version__
from onward.core.daemon_facts import HOLD, QUARANTINE, DaemonFacts, Place, StartDecision, decide_start, fold_facts
from onward.core.records import Json
from onward.core.times import stamp
from onward.errors import StoreError
from onward.ports.clock import Clock
from onward.ports.store import RunStore
from onward.recovery.recover import Claimant

log = structlog.get_logger()


class DaemonLog:
    """The facts so far, those of this daemon among them."""

    def __init__(self, store: RunStore, clock: Clock, claimant: Claimant) -> None:
        self.facts = DaemonFacts()
        self.here: Place = (claimant.machine_id, claimant.runs_inode)
        self._store = store
        self._clock = clock
        self._claimant = claimant

    async def begin(self) -> StartDecision:
        """Read what there is, decide how to begin, and note the start; whoever is to blame is noted before that.

        After the start is noted, the daemon before is no longer the last one: what it had in hand must stand by then.
        """
        try:
            self.facts = fold_facts(await self._store.facts())
        except StoreError as error:
            log.error("facts cannot be read", error=str(error))
        claimant = self._claimant
        now = stamp(self._clock.now())
        decided = decide_start(self.facts, here=self.here, boot_id=claimant.boot_id, now=now)
        for run_id, reason in decided.blamed.items():
            log.error("run quarantined", run_id=run_id, error=reason)
            await self.note("RunSuspended", run_id=run_id, reason=reason)
        about = {"version": __version__, "pid": claimant.pid, "boot_id": claimant.boot_id}
        place = {"machine_id": claimant.machine_id, "runs_inode": claimant.runs_inode}
        await self.note("DaemonStarted", **about, **place, host=os.uname().nodename)
        return decided

    async def note(self, kind: str, **members: Any) -> None:
        """Note a fact; where the disk does not take it, it holds in this process alone."""
        try:
            await self._append(kind, **members)
        except StoreError as error:
            log.warning("fact not written", fact=kind, error=str(error))
            self.facts.apply({"type": kind, "ts": stamp(self._clock.now()), **members})

    @asynccontextmanager
    async def naming(self, run_id: str, doing: str) -> AsyncIterator[None]:
        """Name a run while it could end this daemon: whoever is named when it dies is left alone by the next one."""
        await self.note("RunEntering", run_id=run_id, doing=doing)
        try:
            yield
        except Exception:
            await self.note("RunEntered", run_id=run_id)
            raise
        await self.note("RunEntered", run_id=run_id)

    async def end_quarantine(self, run_id: str, *, by: str) -> None:
        """Let a suspended run be read again. Idempotent.

        Raises:
            StoreError: It could not be noted; the run stays suspended.
        """
        if run_id in self.facts.suspended:
            await self._append("Released", what=QUARANTINE, run_id=run_id, by=by)

    async def release(self, run_id: str, *, by: str) -> None:
        """Let one run go on in this place, wherever it was before and whatever holds the others now.

        Raises:
            StoreError: It could not be noted.
        """
        if not self.facts.passes_hold(run_id, self.here):
            await self._append("Released", what=HOLD, run_id=run_id, by=by, **self._place("", self.here))

    async def hold_anew(self) -> None:
        """Let no run pass that was released by name before.

        Raises:
            StoreError: It could not be noted.
        """
        if self.facts.let_go:
            await self._append("HeldAnew")

    async def release_all(self, *, by: str) -> None:
        """Make this the place where these runs belong, and let the deaths of daemons so far be forgotten.

        Raises:
            StoreError: It could not be noted.
        """
        home = self.facts.home or self.here
        members = {**self._place("", self.here), **self._place("from_", home)}
        await self._append("Released", what=HOLD, by=by, **members)

    def _place(self, prefix: str, place: Place) -> Json:
        return {f"{prefix}machine_id": place[0], f"{prefix}runs_inode": place[1]}

    async def _append(self, kind: str, **members: Any) -> None:
        await self._store.append_fact(type=kind, **members)
        self.facts.apply({"type": kind, "ts": stamp(self._clock.now()), **members})
