"""When a run that rests is looked at again: after a park, a question's time, an error of the disk."""

from datetime import timedelta

from onward.core.retry import doubled, due_at
from onward.core.status import Status
from onward.core.times import parse_stamp, stamp
from onward.ports.clock import Clock
from onward.supervisor.drain import Drain
from onward.supervisor.entries import Entry
from onward.supervisor.grace import Grace

AGAIN_FIRST_S, AGAIN_LONGEST_S = 1.0, 60.0
PARKED_FIRST_S, PARKED_LONGEST_S = 30.0, 1800.0


class Waking:
    """Counts what a run's entry has failed so far; sets no timer itself. All times are seconds from now."""

    def __init__(self, clock: Clock, grace: Grace, drain: Drain) -> None:
        self._clock = clock
        self._grace = grace
        self._drain = drain

    def may_expire(self) -> bool:
        """Whether deadlines apply."""
        return self._grace.left_s() <= 0

    def found_at_rest(self, entry: Entry) -> float | None:
        """Return when a run that rests since before this daemon is looked at; None: when somebody does something."""
        wake_at = entry.index.get("wake_at")
        if entry.queued or entry.suspended is not None or not wake_at:
            return None
        if entry.index.get("status") == Status.PARKED:
            now = stamp(self._clock.now())
            return self._seconds_until(due_at(str(wake_at), str(entry.index.get("updated_at")), now))
        return self._expires(wake_at) if entry.questions else None

    def come_to_rest(self, entry: Entry) -> float | None:
        """Return when a run that has just come to rest is looked at; None: when somebody does something."""
        if entry.held is not None:
            return None
        if entry.index.get("waiting_on") == "human":
            entry.failures = 0
            return None if entry.index["wake_at"] is None else self._expires(entry.index["wake_at"])
        if entry.index.get("status") in (Status.ACTIVE, Status.WAITING) and not self._drain.on:
            return 0.0  # somebody resumed it while it came to rest
        if entry.index.get("status") != Status.PARKED or entry.index.get("wake_at") is None:
            entry.failures = 0
            return None
        entry.failures += 1
        return self._seconds_until(entry.index["wake_at"])

    def disk_failed(self, entry: Entry) -> float:
        """Count one more failure of the disk; return when it is tried again."""
        entry.failures += 1
        return doubled(AGAIN_FIRST_S, AGAIN_LONGEST_S, entry.failures)

    def park_until(self, entry: Entry) -> str:
        """Return for how long to park a run that lacks something, as a time in the journal's form."""
        delay_s = doubled(PARKED_FIRST_S, PARKED_LONGEST_S, entry.failures + 1)
        return stamp(self._clock.now() + timedelta(seconds=delay_s))

    def _expires(self, moment: str) -> float:
        return max(self._grace.left_s(), self._seconds_until(moment))

    def _seconds_until(self, moment: str) -> float:
        """Return how long to wait for a time in the journal's form; never longer than a park can last."""
        try:
            seconds = (parse_stamp(moment) - self._clock.now()).total_seconds()
        except ValueError:
            seconds = 0.0
        return min(max(seconds, 0.0), PARKED_LONGEST_S)
