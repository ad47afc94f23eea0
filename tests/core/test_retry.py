"""What follows from a failed model request."""

import pytest

from onward.core import retry
from onward.core.retry import LONGEST_CHARGED_S, after_failure, due_at
from onward.core.step import Infer, Rest, choose_model, may_enter, next_step
from onward.ports.model import FailureClass
from tests.core import journals as j
from tests.core.journals import Json

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


WRITTEN, RETRY_AT = "2026-12-01T12:00:00.000000Z", "2026-12-01T13:00:00.000000Z"
CLOCKS = [
    ("before the time", "2026-12-01T12:30:00.000000Z", RETRY_AT),
    ("after the time", "2026-12-01T14:00:00.000000Z", RETRY_AT),
    ("set back by seconds", "2026-12-01T11:59:30.000000Z", RETRY_AT),
    ("set back by an hour", "2026-12-01T11:00:00.000000Z", "2026-12-01T11:00:00.000000Z"),
    ("set back by a year", "2025-12-01T12:00:00.000000Z", "2025-12-01T12:00:00.000000Z"),
]


@pytest.mark.parametrize(("now", "expected"), [row[1:] for row in CLOCKS], ids=[row[0] for row in CLOCKS])
def test_a_wait_ends_at_its_time_or_when_the_clock_was_set_back_behind_its_beginning(now: str, expected: str) -> None:
    assert due_at(RETRY_AT, WRITTEN, now) == expected


def test_no_wait_is_longer_than_the_policy_could_give() -> None:
    """Whatever stands in the journal: the longest that a provider may ask for is a week."""
    assert due_at("2099-01-01T00:00:00.000000Z", WRITTEN, WRITTEN) == "2026-12-08T12:00:00.000000Z"


@pytest.mark.parametrize("since", ["", "yesterday", "9999-12-31T23:59:59.000000Z"])
def test_a_wait_of_unknown_beginning_is_over(since: str) -> None:
    assert due_at(RETRY_AT, since, WRITTEN) == WRITTEN


BACK = "2025-12-01T12:00:00.000000Z"


def at(ts: str, *records: Json) -> list[Json]:
    return [record | {"ts": ts} for record in records]


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        (at(WRITTEN, j.failed(RETRY_AT)), Infer),
        (at(WRITTEN, j.failed(RETRY_AT), j.parked("provider", retry_at=RETRY_AT)), Rest),
        ([*at(WRITTEN, j.failed(RETRY_AT)), *at(BACK, j.claimed(epoch=2))], Infer),
        ([*at(WRITTEN, j.failed(RETRY_AT), j.parked("provider", retry_at=RETRY_AT)), *at(BACK, j.said("well?"))], Rest),
    ],
    ids=["cooling", "parked", "cooling, and entered since", "parked, and spoken to since"],
)
def test_a_clock_that_was_set_back_keeps_no_run_waiting(records: list[Json], expected: type) -> None:
    state = j.fold_all([j.started(), j.claimed(), *at(WRITTEN, j.inferring()), *records])

    assert may_enter(state, BACK)
    assert isinstance(next_step(state, now=BACK, active_s=0.0, workers=4), expected)
    assert choose_model(state, BACK) == "p/m"
