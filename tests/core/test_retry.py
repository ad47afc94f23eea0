"""What follows from a failed model request."""

import pytest

from onward.core import retry
from onward.core.retry import LONGEST_CHARGED_S, after_failure
from onward.ports.model import FailureClass

REPEATED = [failure for failure in FailureClass if retry._ROWS[failure].first_s is not None]


def delays(failure: str, *, charged: bool, tries: int = 40) -> list[float]:
    found = [after_failure(failure, n, charged=charged, retry_after_s=None, jitter=1.0) for n in range(1, tries + 1)]
    return [decided.delay_s for decided in found if decided.delay_s is not None]


@pytest.mark.parametrize("failure", REPEATED)
def test_delays_double_up_to_the_longest_of_the_class(failure: str) -> None:
    """For ever: an outage of hours ends by itself."""
    told = delays(failure, charged=False)
    row = retry._ROWS[failure]

    assert (len(told), told[0], told[-1]) == (40, row.first_s, row.longest_s)
    assert told == sorted(told)


@pytest.mark.parametrize("failure", REPEATED)
def test_tries_that_cost_come_at_most_once_an_hour_at_last(failure: str) -> None:
    """So few that a broken provider costs a day of them, not thousands."""
    told = delays(failure, charged=True)

    assert told[-1] == LONGEST_CHARGED_S
    assert sum(delay < LONGEST_CHARGED_S for delay in told) <= 12


@pytest.mark.parametrize("charged", [True, False])
def test_what_the_provider_asked_for_is_obeyed(charged: bool) -> None:
    assert after_failure("rate_limited", 1, charged=charged, retry_after_s=7200, jitter=0).delay_s == 7200


@pytest.mark.parametrize("failure", ["context_overflow", "invalid_request"])
def test_what_no_repetition_heals_is_not_repeated(failure: str) -> None:
    assert after_failure(failure, 1, charged=True, retry_after_s=None, jitter=0).delay_s is None
