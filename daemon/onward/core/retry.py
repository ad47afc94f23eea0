"""What a failed model request means for its run: one table. Pure."""

from dataclasses import dataclass
from datetime import timedelta

from onward.core.times import parse_stamp, stamp
from onward.core.vocabulary import Needs

LONGEST_WAIT_S = 120.0
"""A run that has to wait longer is parked: it leaves memory and comes back by itself at the time."""
LONGEST_RETRY_AFTER_S = 7 * 86_400.0
LONGEST_CHARGED_S = 3600.0
"""How far apart the requests come at last that cost money though they bring nothing."""
CLOCK_STEP_S = 60.0
"""A clock that was set back by less only makes a wait so much longer."""


@dataclass(frozen=True, slots=True)
class Row:
    """One class of failure. Delays double from `first_s` to `longest_s`; `first_s` None: never repeated by itself."""

    first_s: float | None
    longest_s: float
    needs: Needs
    meaning: str


_ROWS: dict[str, Row] = {
    "rate_limited": Row(1.0, 300.0, Needs.PROVIDER, "the provider's rate limit is reached"),
    "overloaded": Row(5.0, 300.0, Needs.PROVIDER, "the provider is overloaded"),
    "network": Row(1.0, 120.0, Needs.NETWORK, "the provider could not be reached, or broke off"),
    "server_error": Row(2.0, 300.0, Needs.PROVIDER, "the provider has an error"),
    "auth": Row(300.0, 3600.0, Needs.KEY, "the provider does not accept the key"),
    "quota": Row(600.0, 3600.0, Needs.PROVIDER, "the account at the provider has no money or quota left"),
    "model_missing": Row(300.0, 3600.0, Needs.PROVIDER, "the provider has no such model"),
    "context_overflow": Row(None, 0.0, Needs.DECISION, "the conversation does not fit the model any more"),
    "invalid_request": Row(
        None, 0.0, Needs.DECISION, "the provider refuses the request itself; this is a bug in Onward, please report it"
    ),
}
_UNKNOWN = Row(5.0, 300.0, Needs.PROVIDER, "the model request failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryDecision:
    """`delay_s` None: the model is not asked again, the run is parked for `needs`."""

    delay_s: float | None
    needs: Needs
    reason: str


def doubled(first_s: float, longest_s: float, failures: int) -> float:
    """Return the delay after so many failures in a row: `first_s` after one, twice as long after each more."""
    return min(first_s * 2.0 ** min(max(failures - 1, 0), 64), longest_s)


def after_failure(
    failure: str, failures: int, *, charged: bool = False, retry_after_s: float | None, jitter: float
) -> RetryDecision:
    """Decide when the same model may be asked again.

    Args:
        failure: The failure's class.
        failures: Failed requests since the newest turn, this one included.
        charged: The provider may have worked on it, so each try costs: they come ever more rarely, whatever the class.
        retry_after_s: What the provider asked for; obeyed where it is longer than our own delay, up to seven days.
        jitter: A random number between 0 and 1, so that many runs do not ask in step.
    """
    row = _ROWS.get(failure, _UNKNOWN)
    if row.first_s is None:
        return RetryDecision(delay_s=None, needs=row.needs, reason=row.meaning)
    longest_s = max(row.longest_s, LONGEST_CHARGED_S) if charged else row.longest_s
    own_s = doubled(row.first_s, longest_s, failures) * (0.5 + jitter / 2)
    asked_s = min(retry_after_s or 0.0, LONGEST_RETRY_AFTER_S)
    return RetryDecision(delay_s=max(own_s, asked_s), needs=row.needs, reason=row.meaning)


def due_at(retry_at: str, since: str, now: str) -> str:
    """Return when a wait that the journal holds is over: never later than the policy could give.

    Written in what is the future now, it tells of a clock that was set back: how long it lasted already is unknown, so
    it is over.

    Args:
        retry_at: As it stands there.
        since: When it was written.
        now: The present time, by the same clock.
    """
    try:
        written, moment = parse_stamp(since), parse_stamp(now)
        longest = stamp(written + timedelta(seconds=LONGEST_RETRY_AFTER_S))
    except (ValueError, OverflowError):
        return now
    return now if (written - moment).total_seconds() > CLOCK_STEP_S else min(retry_at, longest)


def needs_of(failure: str | None) -> tuple[Needs, str]:
    """Return what a run needs that can only wait after this failure, and what it means."""
    row = _ROWS.get(failure or "", _UNKNOWN)
    return row.needs, row.meaning
