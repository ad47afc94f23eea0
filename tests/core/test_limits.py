"""Limits bind before anything is started, and turns that bring nothing are not repeated for ever."""

from typing import Any

import pytest

from onward.core.budget import MAX_CALLS
from onward.core.fruitless import PATIENCE, ROUNDS
from onward.core.gates import look
from onward.core.records import RunParked, ToolCallDone
from onward.core.state import RunState
from onward.core.step import Infer, Park, RunCalls, Step, Write, next_step, parking
from onward.core.vocabulary import Needs
from tests.core import journals as j
from tests.core.journals import Json, text, use

NOW = "2026-12-01T12:00:00.000000Z"


def next_of(state: RunState) -> Step:
    return next_step(state, now=NOW, active_s=0.0, workers=8)


def asked(calls: int, *before: Json, limit: int | None = None, turn: int = 1) -> RunState:
    """Return a run whose turn asks for so many calls."""
    limits = {} if limit is None else {"tool_calls": limit}
    ids = [f"t{turn}c{n}" for n in range(1, calls + 1)]
    started = j.started(limits=limits, agent={"tools": ["shell"]})
    return j.fold_all([started, j.claimed(), *before, j.turn(turn, *map(use, ids), seen=2), j.batch(turn, *ids)])


def settled(state: RunState) -> dict[str, str]:
    """Return the calls that the gates settle, by how."""
    return {record.call_id: record.outcome for record in look(state).records if isinstance(record, ToolCallDone)}


@pytest.mark.parametrize(("limit", "over"), [(1, 3), (3, 1), (4, 0), (100, 0), (None, 0)])
def test_the_calls_of_a_turn_that_are_over_the_limit_are_not_started(limit: int | None, over: int) -> None:
    """The first ones run, in the model's order; each of the others gets a result that says so."""
    state = asked(4, limit=limit)

    assert settled(state) == {f"t1c{n}": "not_started" for n in range(5 - over, 5)}


def test_what_was_not_started_is_not_counted_so_that_an_extension_by_one_is_one_more_call() -> None:
    state = asked(4, limit=1)
    step = next_of(state)
    assert isinstance(step, Write)
    j.fold_all([record.to_json() for record in step.records], state)
    step = next_of(state)
    assert isinstance(step, RunCalls)
    assert [call.call_id for call in step.start] == ["t1c1"]
    j.fold_all([j.handed_over("t1c1"), j.done("t1c1")], state)

    parked = next_of(state)
    assert isinstance(parked, Park)
    assert (parked.needs, state.totals.tool_calls) == ("budget", 1)
    j.fold_all([{"type": "SettingsChanged", "by": "anna", "limits": {"tool_calls": 2}}], state)
    assert isinstance(next_of(state), Infer)


def test_a_crash_among_the_refusals_changes_nothing_of_which_calls_may_run() -> None:
    """The ones that are settled already are not counted any more."""
    state = asked(4, limit=2)
    first, _second = look(state).records
    j.fold_all([first.to_json()], state)

    assert settled(state) == {"t1c4": "not_started"}


def test_a_turn_has_a_bounded_number_of_calls() -> None:
    """Without any limit of the run; with one, both hold."""
    assert len(settled(asked(MAX_CALLS + 7))) == 7
    assert len(settled(asked(MAX_CALLS + 7, limit=10))) == MAX_CALLS + 7 - 10
    assert len(settled(asked(MAX_CALLS + 7, limit=MAX_CALLS + 3))) == 7


def rounds(number: int, outcome: str, *, last: str | None = None, between: Json | None = None) -> Step:
    """Return what is next of a run whose turns all asked for the same call, which ended so."""
    records: list[Json] = [j.started(agent={"tools": ["shell"]}), j.claimed()]
    for turn in range(1, number + 1):
        call_id = f"t{turn}c1"
        if turn == number and between is not None:
            records.append(between)
        ended = last if turn == number and last is not None else outcome
        done = j.done(call_id, outcome=ended, is_error=ended != "ok")
        records += [j.turn(turn, use("x"), seen=2), j.batch(turn, call_id), j.handed_over(call_id), done]
    return next_of(j.fold_all(records))


@pytest.mark.parametrize(
    ("number", "outcome", "more", "parks"),
    [
        (ROUNDS, "error", {}, True),
        (ROUNDS, "denied", {}, True),
        (ROUNDS - 1, "error", {}, False),
        (ROUNDS, "error", {"last": "ok"}, False),
        (ROUNDS * 3, "ok", {}, False),
        (ROUNDS * 3, "interrupted", {}, False),
        (ROUNDS * 3, "not_started", {}, False),
        (ROUNDS, "error", {"between": j.said("try it with sudo", "m1")}, False),
        (ROUNDS, "error", {"between": {"type": "RunResumed", "by": "anna", "reason": "go on"}}, False),
    ],
)
def test_a_model_that_asks_for_the_same_failing_calls_over_and_over_waits_for_a_person(
    number: int, outcome: str, more: dict[str, Any], parks: bool
) -> None:
    """Not where it makes up for an interruption, where the call works in the end, or where somebody said something."""
    step = rounds(number, outcome, **more)

    assert isinstance(step, Park) is parks
    if isinstance(step, Park):
        assert (step.needs, "8 times in a row" in step.reason, "shell" in step.reason) == (Needs.HUMAN, True, True)


CUT = {"stop_reason": "length"}
BROKEN: Json = {"type": "tool_use", "id": "x", "name": "shell", "input": '{"command": "ec'}


def after(*turns: tuple[list[Json], str], then: list[Json] | None = None) -> Step:
    records: list[Json] = [j.started(agent={"tools": ["shell"]}), j.claimed()]
    for number, (content, stop) in enumerate(turns, 1):
        calls = [f"t{number}c{n}" for n, block in enumerate(content, 1) if block["type"] == "tool_use"]
        done = [record for call in calls for record in (j.handed_over(call), j.done(call))]
        records += [j.turn(number, *content, seen=2, stop_reason=stop), *([j.batch(number, *calls)] if calls else [])]
        records += done
    return next_of(j.fold_all([*records, *(then or [])]))


WORD: tuple[list[Json], str] = ([text("x")], "length")
CALL: tuple[list[Json], str] = ([use("a")], "length")
TORN: tuple[list[Json], str] = ([BROKEN], "length")
NONE: tuple[list[Json], str] = ([text("x")], "tool_use")
REFUSED: tuple[list[Json], str] = ([text("no")], "refusal")
GIVEN_UP = [
    ("a refusal", [REFUSED]),
    ("an empty refusal", [([], "refusal")]),
    ("cut answers", [WORD] * PATIENCE),
    ("cut calls", [TORN] * PATIENCE),
    ("announced calls that do not come", [NONE] * PATIENCE),
    ("a mixture", [WORD, TORN, NONE]),
]


@pytest.mark.parametrize("turns", [row[1] for row in GIVEN_UP], ids=[row[0] for row in GIVEN_UP])
def test_turns_that_bring_nothing_park_the_run_until_a_person_does_something(
    turns: list[tuple[list[Json], str]],
) -> None:
    parked = after(*turns)

    assert isinstance(parked, Park)
    assert (parked.needs, parked.retry_at) == ("human", None)
    resumed = [j.parked("human"), j.control("RunResumed")]
    for then in ([j.said("try this")], resumed, [j.ended("failed"), j.revived("manual")]):
        assert isinstance(after(*turns, then=then), Infer)
    own = [j.said("x", source="system"), j.said("y", source="revival"), j.revived()]
    assert isinstance(after(*turns, then=own), Park)


@pytest.mark.parametrize(
    "turns", [[WORD] * (PATIENCE - 1), [WORD, WORD, CALL, WORD, WORD], [CALL] * 9], ids=["few", "apart", "whole calls"]
)
def test_a_run_whose_turns_bring_something_goes_on(turns: list[tuple[list[Json], str]]) -> None:
    assert isinstance(after(*turns), Infer)


@pytest.mark.parametrize(
    ("records", "parks"),
    [
        ([], True),
        ([j.parked("workspace")], True),
        ([j.control("RunPaused")], False),
        ([j.control("RunQuarantined")], False),
        ([{"type": "CancelRequested", "by": "anna"}], False),
        ([j.ended("cancelled")], False),
    ],
    ids=["at work", "parked", "paused", "quarantined", "to be cancelled", "over"],
)
def test_a_run_that_a_human_brought_to_rest_is_not_parked_instead(records: list[Json], parks: bool) -> None:
    """What kept it from going on took a while to find out; a pause that was acknowledged meanwhile holds."""
    parked = RunParked(by="daemon", reason="x", needs=Needs.KEY, retry_at=NOW)

    assert parking(j.fold_all([j.started(), j.claimed(), *records]), parked) == ([parked] if parks else [])
