"""The runs that a daemon finds when it begins, and what becomes of each: queued, or reported and left as it is."""

from collections.abc import Callable

import structlog

from onward.core.fold import NewerRecord
from onward.core.records import BadRecord, Json
from onward.core.status import TERMINAL, Status
from onward.errors import NotFound, StoreError
from onward.ports.store import Listed, RunStore
from onward.supervisor.daemon_log import DaemonLog
from onward.supervisor.entries import Entries, Entry
from onward.supervisor.report import Report
from onward.supervisor.starting import first_index

log = structlog.get_logger()

SAID_EVERY = 100
"""Runs that are looked at between two words about it."""
_RESTING = frozenset({Status.PAUSED, Status.PARKED, Status.QUARANTINED, *TERMINAL})


class Finding:
    """Fills `entries`. It reads indexes, and of a run without one the first record; nothing is folded."""

    def __init__(self, entries: Entries, store: RunStore, daemon_log: DaemonLog, report: Report) -> None:
        self._entries = entries
        self._store = store
        self._log = daemon_log
        self._report = report

    async def find(self, progress: Callable[[str], None]) -> None:
        """List the runs; `progress` is told whenever another piece is done."""
        listed = await self._store.list_runs()
        progress(f"{len(listed)} runs listed")
        for number, run in enumerate(listed, 1):
            await self._found(run)
            if number % SAID_EVERY == 0:
                progress(f"{number} of {len(listed)} runs looked at")

    async def _found(self, run: Listed) -> None:
        known = run.index or run.stale_index or (None if run.problem else await self._as_started(run.run_id))
        index = known or {"run_id": run.run_id, "status": Status.ACTIVE}
        index.pop("journal", None)  # where the file stood when it was written: nothing to be shown
        entry = self._entries.add(
            run.run_id,
            index,
            problem=run.problem,
            questions=run.questions,
            suspended=self._log.facts.suspended.get(run.run_id),
            suspect=run.index.get("suspect") if run.index is not None else None,
        )
        self._becomes(entry, run)

    def _becomes(self, entry: Entry, run: Listed) -> None:
        """Queue a run that is to be looked at; what rests is only reported, what is over not even that."""
        if entry.suspended is not None:
            self._reported(run.run_id, "quarantined", entry.suspended)
        elif run.problem is not None:
            self._reported(run.run_id, "damaged", run.problem)
        elif run.index is None or (run.index["status"] not in _RESTING and run.index.get("waiting_on") != "human"):
            entry.queued = True
            self._report.waits_for.add(run.run_id)
        elif run.index["status"] not in TERMINAL:
            reason = str(run.index.get("error") or "waits for a human")
            self._reported(run.run_id, str(run.index["status"]), reason)

    def _reported(self, run_id: str, outcome: str, reason: str) -> None:
        self._report.waits_for.add(run_id)
        self._report.add(outcome, run_id, reason)

    async def _as_started(self, run_id: str) -> Json | None:
        """Return the index that a run without one began with: whoever repeats its start must be told of it."""
        try:
            first = await self._store.records(run_id, after=0, limit=1)
            return first_index(first[0]) if first and first[0]["type"] == "RunStarted" else None
        except (StoreError, NotFound, BadRecord, NewerRecord):
            return None
