"""What is spent: carried by the journal, charged on a crash too, and checked before each request."""

from typing import Any

import pytest

from onward.core.step import Infer, Park, next_step
from tests.core import journals as j

NOW = "2026-12-01T12:00:00.000000Z"
ESTIMATE = {"estimate": {"tokens": 1000, "cost_usd": 0.5}}


@pytest.mark.parametrize(
    ("records", "tokens", "cost_usd"),
    [
        ([j.turn(1, j.text("x"), seen=3)], 15, 0.25),
        ([j.failed()], 0, 0.0),
        ([j.failed() | {"charged": True}], 1000, 0.5),
        ([j.failed() | {"charged": True}, j.revived()], 1000, 0.5),
        ([j.revived()], 1000, 0.5),
        ([j.draining()], 1000, 0.5),
        ([j.control("RunPaused")], 1000, 0.5),
        ([j.inferring() | ESTIMATE], 1000, 0.5),
        ([j.revived(), j.inferring() | ESTIMATE, j.turn(1, j.text("x"), seen=3)], 1015, 0.75),
    ],
    ids=[
        "answered",
        "refused",
        "broke off",
        "broke off, then crash",
        "crash",
        "drain",
        "pause",
        "asked again",
        "crash, then answered",
    ],
)
def test_a_request_whose_end_is_unknown_is_charged_its_estimate(
    records: list[j.Json], tokens: int, cost_usd: float
) -> None:
    """Restarts launder no budget: what may have been used counts as used, once."""
    totals = j.fold_all([j.started(), j.claimed(), j.inferring() | ESTIMATE, *records]).totals

    assert (totals.tokens_in + totals.tokens_out, totals.cost_usd) == (tokens, cost_usd)


@pytest.mark.parametrize(
    ("limits", "goes_on"),
    [({"tokens": 15}, False), ({"tokens": 16}, True), ({"cost_usd": 0.25}, False), ({"cost_usd": 0.26}, True)],
)
def test_money_is_checked_before_the_next_request(limits: dict[str, Any], goes_on: bool) -> None:
    """A limit that is reached parks the run; nothing is asked any more."""
    records = [j.started(limits=limits), j.claimed(), j.turn(1, j.text("x"), seen=2, stop_reason="length")]

    step = next_step(j.fold_all(records), now=NOW, active_s=0.0, workers=4)

    assert step == Infer(1, "p/m") if goes_on else (isinstance(step, Park) and step.needs == "budget")


def test_a_limit_that_is_raised_counts_from_then_on() -> None:
    """SettingsChanged holds the whole limits."""
    spent = [j.started(limits={"cost_usd": 0.1}), j.claimed(), j.turn(1, j.text("x"), seen=2, stop_reason="length")]
    raised = {"type": "SettingsChanged", "by": "anna", "limits": {"cost_usd": 1.0}}

    assert next_step(j.fold_all([*spent, raised]), now=NOW, active_s=0.0, workers=4) == Infer(1, "p/m")
