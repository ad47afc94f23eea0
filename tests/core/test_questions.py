"""Questions that hold a run back: what they hold, what an answer does, and what a restart leaves as it was."""

from typing import Any

import pytest

from onward.core.index import index_of
from onward.core.plan import Policy, Verdict, plan
from onward.core.state import RunState
from onward.core.step import Infer, Park, RunCalls, WaitForHuman, Write
from onward.core.vocabulary import Cause
from tests.core import journals as j
from tests.core.journals import BOOT, Json, step_of

ASKING: Json = {"tools": ["shell", "ask_user"], "permissions": {"shell": [{"then": "ask"}]}}
HERE = Policy(boot_id=BOOT)


def run(*records: Json, agent: Json = ASKING, **members: Any) -> RunState:
    return j.fold_all([j.started(agent=agent, **members), j.claimed(), *records])


def written(state: RunState) -> RunState:
    """Write what is to be written next."""
    step = step_of(state)
    assert isinstance(step, Write)
    return j.fold_all([record.to_json() for record in step.records], state)


def batch(*names: str) -> list[Json]:
    effects = {"ask_user": "read"}
    calls = [
        {**j.call(f"t1c{n}", effect=effects.get(name, "write"), arguments={"question": "x?"}), "name": name}
        for n, name in enumerate(names, 1)
    ]
    return [j.turn(1, *(j.use(c["call_id"], c["name"]) for c in calls), seen=2), j.batch(1, *calls)]


def waiting(*names: str, **members: Any) -> RunState:
    return written(run(*batch(*names), **members))


# What recovery makes of them


@pytest.mark.parametrize("name", ["shell", "ask_user"])
@pytest.mark.parametrize("answer", [None, {"decision": "approve", "value": "x"}])
def test_a_restart_leaves_a_question_and_an_answer_as_they_are(name: str, answer: Json | None) -> None:
    """Nothing was interrupted: no revival, no notice, no settlement, and what is next is the same."""
    state = waiting(name)
    if answer:
        j.fold_all([j.answered("q1", answer)], state)
    expected = step_of(state)
    for epoch in (2, 3):  # the process after the next one comes to the same
        decided = plan(state, {}, HERE)
        assert (decided.verdict, decided.revived, decided.notice) == (Verdict.ENTER, None, None)
        assert decided.settlements == ()
        j.fold_all([j.claimed(epoch=epoch)], state)
        assert step_of(state) == expected


def test_what_ran_beside_a_question_is_settled_and_the_question_stays_open() -> None:
    """Under its own id; the model is told of the interruption when it is asked again."""
    state = waiting("ask_user", "shell", agent={"tools": ["shell", "ask_user"]})
    j.fold_all([j.handed_over("t1c2")], state)
    decided = plan(state, {}, HERE)

    assert [(r.to_json()["call_id"], r.to_json()["outcome"]) for r in decided.settlements] == [("t1c2", "interrupted")]
    assert decided.revived is not None
    assert decided.notice is not None


def test_a_run_whose_question_was_not_written_yet_is_recovered_where_questions_expire() -> None:
    """Between a batch and its question; the definition says that questions expire."""
    decided = plan(run(*batch("ask_user"), agent={**ASKING, "question_expires_s": 60}), {}, HERE)

    assert [record.to_json()["outcome"] for record in decided.settlements] == ["not_started"]


def test_on_restart_ask_asks_once_for_each_interruption() -> None:
    """Before any request; a process that dies while it waits interrupts nothing."""
    state = run(j.inferring(), on_restart="ask")
    decided = plan(state, {}, HERE)
    assert (decided.verdict, decided.revived and decided.revived.cause) == (Verdict.ASK, Cause.CRASH)
    j.fold_all([j.revived(), j.said("[background event]", "r", "revival")], state)
    j.fold_all([j.opened("q1", "restart", {"revival": 1})], state)
    for epoch in (2, 3):
        assert step_of(state) == WaitForHuman(("q1",))
        assert index_of(state)["waiting_on"] == "human"
        assert plan(state, {}, HERE).verdict == Verdict.ENTER
        assert plan(state, {}, HERE).revived is None
        j.fold_all([j.claimed(epoch=epoch)], state)
    j.fold_all([j.answered("q1", {"decision": "resume"})], state)
    assert isinstance(step_of(written(state)), Infer)


def test_on_restart_ask_answered_with_stop_pauses_before_anything_else_and_a_human_may_resume() -> None:
    """Also where the process dies after the first of the two records: a stop is never a silent yes."""
    state = run(j.inferring(), j.revived(), j.opened("q1", "restart", {"revival": 1}), on_restart="ask")
    j.fold_all([j.answered("q1", {"decision": "stop"})], state)
    step = step_of(state)
    assert isinstance(step, Write)
    assert [type(record).__name__ for record in step.records] == ["RunPaused", "InteractionClosed"]
    j.fold_all([step.records[0].to_json()], state)
    assert state.status == "paused"
    j.fold_all([step.records[1].to_json(), j.control("RunResumed")], state)
    assert isinstance(step_of(state), Infer)


# What is shown, and whether there is something to do


def test_a_message_does_not_answer_a_question_and_the_run_still_waits() -> None:
    """It is shown as waiting, so that nobody enters it again and again."""
    state = j.fold_all([j.said("hurry")], waiting("ask_user"))

    assert step_of(state) == WaitForHuman(("q1",))
    assert (index_of(state)["status"], index_of(state)["waiting_on"]) == ("waiting", "human")


def test_one_answer_of_two_is_something_to_do() -> None:
    """The run is entered for it, though it waits for the other one too."""
    state = waiting("ask_user", "ask_user")
    assert index_of(state)["waiting_on"] == "human"
    j.fold_all([j.answered("q2", {"value": "x"})], state)
    assert index_of(state)["status"] == "active"
    assert index_of(written(state))["waiting_on"] == "human"


def test_a_run_that_works_beside_a_question_does_not_wait_for_a_human() -> None:
    """Its command runs."""
    state = written(run(*batch("ask_user", "shell"), agent={"tools": ["shell", "ask_user"]}))
    assert isinstance(step_of(state), RunCalls)
    assert index_of(state)["status"] == "active"
    j.fold_all([j.handed_over("t1c2")], state)
    assert index_of(state)["status"] == "active"


# Budgets and damage


def spent() -> RunState:
    state = run(*batch("none"), j.done("t1c1"), agent={"tools": []}, limits={"turns": 1})
    step = step_of(state)
    assert isinstance(step, Park)
    assert step.question is not None
    return j.fold_all([step.question.to_json(), j.parked("budget")], state)


def test_a_budget_is_asked_about_once() -> None:
    """Whoever dies between the question and the parking parks it; resumed as it is, it parks again."""
    state = spent()
    assert [question["kind"] for question in j.snapshot(state)["interactions"].values()] == ["budget"]
    step = step_of(j.fold_all([j.control("RunResumed")], state))
    assert isinstance(step, Park)
    assert step.question is None


def test_a_budget_that_was_raised_otherwise_closes_its_question() -> None:
    """Nothing is left to answer, and the run is not taken for one that waits."""
    state = spent()
    raised: Json = {"type": "SettingsChanged", "by": "me", "limits": {"turns": 9}}
    j.fold_all([raised, j.control("RunResumed")], state)
    assert index_of(state)["status"] == "active"
    assert isinstance(step_of(written(state)), Infer)
    assert state.open_questions == []


def test_damage_that_a_human_went_past_otherwise_closes_its_question() -> None:
    """A manual revival is a decision too."""
    state = run(j.opened("q1", "damage", {"damage": "x"}), j.parked("damaged"), j.revived("manual"))

    assert isinstance(step_of(written(state)), Infer)
    assert state.open_questions == []


def test_grants_stand_in_the_settings_and_are_kept() -> None:
    """A later change of limits alone does not take them back, nor does a Checkpoint."""
    grant: Json = {"tool": "shell"}
    state = run({"type": "SettingsChanged", "by": "me", "limits": {}, "grants": [grant]})
    j.fold_all([{"type": "SettingsChanged", "by": "me", "limits": {"turns": 3}}, *batch("shell")], state)

    assert j.copied(state).grants == [grant]
    assert isinstance(step_of(state), RunCalls)
