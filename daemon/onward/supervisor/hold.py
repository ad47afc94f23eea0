"""What holds runs back: whoever is about to let one go on asks here."""

from dataclasses import dataclass, field

from onward.supervisor.daemon_log import DaemonLog
from onward.supervisor.entries import Entry
from onward.supervisor.report import Report


@dataclass(slots=True)
class Hold:
    """`reasons` are why nothing is entered, by words: `asked`, `copy`, `crash-loop`. Without any, runs are entered."""

    daemon_log: DaemonLog
    report: Report
    reasons: dict[str, str] = field(default_factory=dict)

    @property
    def on(self) -> bool:
        return bool(self.reasons)

    def holds_back(self, entry: Entry) -> bool:
        """Whether the run is not to go on: then that is shown of it, and it stands in no queue any more."""
        if not self.on or self.daemon_log.facts.passes_hold(entry.run_id, self.daemon_log.here):
            return False
        entry.held, entry.queued = "; ".join(self.reasons.values()), False
        self.report.add("held", entry.run_id, entry.held)
        entry.notify()
        return True
