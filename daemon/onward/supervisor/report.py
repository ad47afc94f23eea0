"""The recovery report: what became of each run that was found at the start."""

import time
from dataclasses import dataclass, field

import structlog

from onward.core.plan import RecoveryPlan, Verdict
from onward.core.records import Json
from onward.core.state import RunState
from onward.core.status import TERMINAL, Status

log = structlog.get_logger()

_LONGEST_LIST = 1000
_LOGGED = 20

_VERDICTS = {
    Verdict.ENTER: "resumed",
    Verdict.END: "ended",
    Verdict.PARK: "parked",
    Verdict.QUARANTINE: "quarantined",
    Verdict.STOP: "paused",
    Verdict.ASK: "waiting",
}


@dataclass(slots=True)
class Report:
    """Counts, and the reason for each run that did not simply go on. `waits_for` are the runs not yet looked at."""

    counts: dict[str, int] = field(default_factory=dict)
    reasons: list[Json] = field(default_factory=list)
    waits_for: set[str] = field(default_factory=set)
    interrupted: int = 0
    _told: bool = False
    began: float = field(default_factory=time.monotonic)
    took_s: float | None = None
    """Seconds until every run was looked at; None: not yet."""

    def add(self, outcome: str, run_id: str, reason: str) -> None:
        """Count a run, once."""
        if run_id not in self.waits_for:
            return
        self.waits_for.discard(run_id)
        self.counts[outcome] = self.counts.get(outcome, 0) + 1
        if outcome not in ("resumed", "terminal") and len(self.reasons) < _LONGEST_LIST:
            self.reasons.append({"run_id": run_id, "outcome": outcome, "reason": reason})

    def count(self, state: RunState, decided: RecoveryPlan | None) -> None:
        """Count a run by what was decided of it; None: it was left as it is."""
        if decided is not None and decided.revived is not None and state.run_id in self.waits_for:
            self.interrupted += 1
        if decided is None or decided.verdict is Verdict.LEAVE:
            outcome = "terminal" if state.status in TERMINAL else str(state.status)
            outcome = "waiting" if state.status is Status.ACTIVE else outcome
            self.add(outcome, state.run_id, state.reason or "")
        else:
            self.add(_VERDICTS[decided.verdict], state.run_id, decided.reason)

    def look_again(self, run_id: str) -> None:
        """Take back what was said of a run that was held: now it is let in."""
        held = [reason for reason in self.reasons if (reason["run_id"], reason["outcome"]) == (run_id, "held")]
        for reason in held:
            self.reasons.remove(reason)
            self.waits_for.add(run_id)
        if held and self.counts.get("held"):
            self.counts["held"] -= 1
            self._told = False
        self.counts = {outcome: count for outcome, count in self.counts.items() if count}

    def tell(self) -> None:
        """Log the report, once it is complete; `onward status` has all of its reasons."""
        if not self._told and not self.waits_for:
            self._told = True
            if self.took_s is None:
                self.took_s = time.monotonic() - self.began
            log.info("recovery done", interrupted=self.interrupted, counts=self.counts, reasons=self.reasons[:_LOGGED])

    def to_json(self) -> Json:
        return {
            "done": not self.waits_for,
            "seconds": None if self.took_s is None else round(self.took_s, 3),
            "waiting": len(self.waits_for),
            "interrupted": self.interrupted,
            "counts": self.counts,
            "reasons": self.reasons,
        }
