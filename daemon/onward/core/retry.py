"""What a failed model request means for its run: one table. Pure."""

from dataclasses import dataclass

from onward.core.vocabulary import Needs

FIRST_DELAY_S = 1.0
LONGEST_DELAY_S = 300.0

_RETRIED = frozenset({"rate_limited", "overloaded", "network"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryDecision:
    """`delay_s` None: not repeated, the run is parked for `needs`."""

    delay_s: float | None
    reason: str
    needs: Needs | None = None


def after_failure(failure: str, failures: int, *, retry_after_s: float | None, jitter: float) -> RetryDecision:
    """Decide when to ask again.

    Args:
        failure: The failure's class.
        failures: Failed requests since the newest turn, this one included.
        retry_after_s: What the provider asked for; it is obeyed where it is longer than our own delay.
        jitter: A random number between 0 and 1, so that many runs do not ask in step.
    """
    if failure not in _RETRIED:
        reason = f"the model request failed ({failure}) and would fail again"
        return RetryDecision(delay_s=None, reason=reason, needs=Needs.DECISION)
    longest = min(LONGEST_DELAY_S, FIRST_DELAY_S * 2 ** min(failures - 1, 16))
    delay_s = max(longest * (0.5 + jitter / 2), retry_after_s or 0.0)
    return RetryDecision(delay_s=delay_s, reason=f"{failure}, attempt {failures}")
