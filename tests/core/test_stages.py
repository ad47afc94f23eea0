"""Stages: what a run goes through, what holds in each, and what a human decides between two of them."""

from typing import Any

import pytest

from onward.core.index import index_of, visits_of
from onward.core.plan import Policy, Verdict, plan
from onward.core.records import BadRecord, RunEnded
from onward.core.stages import stages_of
from onward.core.state import RunState
from onward.core.step import End, Infer, WaitForHuman, Write
from tests.core import journals as j
from tests.core.journals import BOOT, Json, step_of, text

PLAN: Json = {
    "name": "plan",
    "prompt": "Plan it.",
    "tools": ["read_file"],
    "checkpoint": ["approve"],
    "next": ["build"],
}
BUILD: Json = {"name": "build", "prompt": "Build it.", "model": "q/strong", "permissions": {"shell": [{"then": "ask"}]}}
AGENT: Json = {"tools": ["shell", "read_file"], "stages": [PLAN, BUILD]}
NEVER = 20
"""More steps than any of these runs takes between two turns."""


def agent(*stages: Json) -> Json:
    return {"tools": ["shell", "read_file", "finish"], "stages": list(stages)}


def begun(definition: Json = AGENT) -> RunState:
    return settled(j.fold_all([j.started(agent=definition), j.claimed()]))


def settled(state: RunState) -> RunState:
    """Write what is to be written, until something else is next."""
    for _ in range(NEVER):
        step = step_of(state)
        if not isinstance(step, Write):
            return state
        j.fold_all([record.to_json() for record in step.records], state)
    raise AssertionError("the run writes for ever")


def thinks(state: RunState, *content: Json, **members: Any) -> RunState:
    """Take a turn of the model, and carry the run on until something else is next."""
    assert isinstance(step_of(state), Infer)
    j.fold_all([j.inferring(), j.turn(state.turns + 1, *content, seen=state.seq + 1, **members)], state)
    return settled(state)


def calls(state: RunState, name: str, **done: Any) -> RunState:
    """Take a turn that calls one tool, which is carried out."""
    number = state.turns + 1
    call = {**j.call(f"t{number}c1", effect="read"), "name": name}
    j.fold_all([j.inferring(), j.turn(number, j.use("x", name), seen=state.seq + 1), j.batch(number, call)], state)
    j.fold_all([j.handed_over(f"t{number}c1"), j.done(f"t{number}c1", **done)], state)
    return settled(state)


def answers(state: RunState, interaction_id: str, **answer: Any) -> RunState:
    return settled(j.fold_all([j.answered(interaction_id, answer)], state))


def visits(state: RunState) -> list[tuple[str, int]]:
    return [(visit.stage, visit.visit) for visit in state.ledger.visits]


def told(state: RunState) -> list[str]:
    blocks = [block for message in state.conversation.request() for block in message["content"]]
    return [block["text"] for block in blocks if block["type"] == "text"]


def test_a_run_begins_in_its_first_stage_and_is_told_so() -> None:
    """Before the first request, with the tools of that stage."""
    state = begun()

    assert (visits(state), told(state)) == ([("plan", 1)], [j.TASK, "Plan it."])
    assert (state.tools, state.allows("shell"), state.chain) == (["read_file", "transition"], False, ["p/m"])
    assert index_of(state)["stage"] == "plan"


def test_a_stage_waits_for_approval_and_the_next_one_has_its_own_tools_permissions_and_model() -> None:
    """Nothing is asked of a model in between."""
    state = thinks(begun(), text("The plan."))
    assert step_of(state) == WaitForHuman(("q1",))
    question = state.interactions["q1"]
    assert question.binds_to == {"stage": "plan", "visit": 1, "point": 0}
    assert (question.ask, question.options) == ({"result": "The plan."}, ["approve", "edit", "reject"])
    answers(state, "q1", decision="approve")
    assert step_of(state) == Infer(1, "q/strong")
    assert visits(state) == [("plan", 1), ("build", 1)]
    assert (state.tools, state.stage and state.stage.permissions) == (["shell", "read_file"], BUILD["permissions"])
    end = step_of(thinks(state, text("Built.")))
    assert isinstance(end, End)
    assert (end.status, end.result) == ("completed", "Built.")


def test_a_rejected_stage_goes_on_with_the_reason_and_is_asked_about_again_after_a_turn() -> None:
    """As a new question; the old one stays answered."""
    state = answers(thinks(begun(), text("Bad.")), "q1", decision="reject", reason="too short")
    assert told(state)[-1] == "Rejected: too short"
    thinks(state, text("Better."))
    assert step_of(state) == WaitForHuman(("q2",))
    assert state.interactions["q2"].ask == {"result": "Better."}
    assert visits(answers(state, "q2", decision="approve")) == [("plan", 1), ("build", 1)]


def test_an_edit_is_the_result_and_the_next_stage_is_told_it() -> None:
    """Once, behind its own prompt."""
    state = answers(thinks(begun(), text("The plan.")), "q1", decision="edit", text="My plan.")

    assert state.ledger.visits[0].result == "My plan."
    assert told(state)[-2:] == ["Build it.", "Approved with changes. This counts:\nMy plan."]


def test_several_points_are_asked_one_after_the_other_and_show_what_counts_by_then() -> None:
    """The second is asked about what the first made of it; both are needed."""
    two = {**PLAN, "checkpoint": ["approve", "sign"]}
    state = answers(thinks(begun(agent(two, BUILD)), text("The plan.")), "q1", decision="edit", text="My plan.")
    assert step_of(state) == WaitForHuman(("q2",))
    second = state.interactions["q2"]
    assert (second.binds_to["point"], second.ask) == (1, {"result": "My plan."})
    assert visits(state) == [("plan", 1)]
    other = answers(j.copied(state), "q2", decision="reject", reason="no")
    assert told(other)[-1] == "Rejected: no\nIt had been changed to:\nMy plan."
    answers(state, "q2", decision="approve")
    assert visits(state) == [("plan", 1), ("build", 1)]
    assert told(state)[-1] == "Approved with changes. This counts:\nMy plan."


def test_an_expired_checkpoint_is_no_approval_and_no_human_s_word() -> None:
    """The model is told that nobody answered."""
    state = thinks(begun({**AGENT, "question_expires_s": 60}), text("The plan."))
    assert state.interactions["q1"].expires_at == "2026-11-30T19:05:05.123456Z"
    j.fold_all([j.closed("q1")], state)
    settled(state)
    assert visits(state) == [("plan", 1)]
    assert told(state)[-1] == "Not approved, for nobody answered: it expired"


def test_a_message_goes_before_an_open_checkpoint() -> None:
    """The run works on, the question is closed, and a later turn is asked about anew."""
    state = settled(j.fold_all([j.said("wait")], thinks(begun(), text("The plan."))))
    assert isinstance(step_of(state), Infer)
    assert [(q.is_open, q.answer) for q in state.interactions.values()] == [(False, None)]
    assert step_of(thinks(state, text("Other plan."))) == WaitForHuman(("q2",))


CHOICE = agent({"name": "a", "checkpoint": ["approve"], "next": ["b", "c"]}, {"name": "b"}, {"name": "c"})


def test_a_stage_with_several_next_ones_asks_the_model_and_then_the_human_once() -> None:
    """The choice is made with `transition`; who chooses nothing is told to, and then goes on with the first."""
    state = thinks(begun(CHOICE), text("Done."))
    assert told(state)[-1] == "This stage is done. Call transition with the next one: b, c."
    assert state.interactions == {}
    chosen = calls(j.copied(state), "transition", result="The next stage is c: so", moves_to="c")
    assert step_of(chosen) == WaitForHuman(("q1",))
    assert chosen.interactions["q1"].ask == {"result": "The next stage is c: so"}
    assert visits(answers(chosen, "q1", decision="approve")) == [("a", 1), ("c", 1)]
    stubborn = thinks(state, text("Done."))
    assert visits(answers(stubborn, "q1", decision="approve")) == [("a", 1), ("b", 1)]


LOOP = {"name": "a", "next": ["a"], "max_visits": 3}


@pytest.mark.parametrize(("on_error", "reached"), [("fail", [1, 2, 3]), ("b", [1, 2, 3]), ("a", [1, 2, 3])])
def test_a_stage_is_not_visited_more_often_than_it_may(on_error: str, reached: list[int]) -> None:
    """Then its `on_error` decides: another stage, or the run fails."""
    state = begun(agent({**LOOP, "on_error": on_error}, {"name": "b"}))
    while state.status == "active" and state.stage and state.stage.name == "a":
        thinks(state, text("again"))
    seen = [visit for stage, visit in visits(state) if stage == "a"]

    assert seen == reached
    assert (state.status, visits(state)[-1][0]) == (("active", "b") if on_error == "b" else ("failed", "a"))


@pytest.mark.parametrize("prompt", ["", "Mend it."])
def test_a_stage_that_failed_is_followed_by_its_on_error_once(prompt: str) -> None:
    """With or without a prompt: the `finish` that said so belongs to the stage before."""
    stages = ({"name": "a", "on_error": "b"}, {"name": "b", "prompt": prompt, "on_error": "b"})
    state = calls(begun(agent(*stages)), "finish", result="broken", ends_run="failed")
    assert visits(state) == [("a", 1), ("b", 1)]
    assert isinstance(step_of(state), Infer)
    end = step_of(thinks(state, text("mended")))
    assert isinstance(end, End)
    assert (end.status, end.result) == ("completed", "mended")


def test_a_finish_that_failed_ends_the_run_where_nothing_follows() -> None:
    """`on_error` is `fail` where nothing is said."""
    end = step_of(calls(begun(agent({"name": "a"})), "finish", result="broken", ends_run="failed"))

    assert isinstance(end, End)
    assert (end.status, end.result) == ("failed", "broken")


def test_the_ledger_counts_each_visit_for_itself_and_nothing_is_zeroed() -> None:
    """Turns, tokens, cost and result; a Checkpoint carries them."""
    state = answers(thinks(begun(), text("The plan.")), "q1", decision="approve")
    j.fold_all([j.revived(), j.claimed(epoch=2)], state)
    thinks(thinks(state, text("half"), stop_reason="max_tokens"), text("whole"))
    rows = [(v["stage"], v["visit"], v["turns"], v["tokens"], v["cost_usd"]) for v in visits_of(j.copied(state))]

    assert rows == [("plan", 1, 1, 15, 0.25), ("build", 1, 2, 30, 0.5)]
    assert [v["result"] for v in visits_of(state)] == ["The plan.", None]
    assert visits_of(state)[0]["left"] == j.TS


def every_prefix(before: RunState, after: list[Json]) -> list[RunState]:
    """Return what another process finds when only the first of some records reached the disk."""
    states = []
    for count in range(len(after) + 1):
        state = j.copied(before)
        j.fold_all([j.claimed(epoch=2), *after[:count], j.claimed(epoch=3)], state)
        states.append(state)
    return states


@pytest.mark.parametrize(
    "answer", [{"decision": "approve"}, {"decision": "edit", "text": "My plan."}, {"decision": "reject"}]
)
def test_whoever_dies_between_two_stages_comes_to_the_same_without_asking_a_model(answer: Json) -> None:
    """Each prefix of what is written between an answer and the next request is carried on, and is no interruption."""
    state = j.fold_all([j.answered("q1", answer)], thinks(begun(), text("The plan.")))
    step = step_of(state)
    assert isinstance(step, Write)
    expected = settled(j.copied(state))
    torn = every_prefix(state, [record.to_json() for record in step.records])
    for found in torn[:-1]:
        decided = plan(found, {}, Policy(boot_id=BOOT))
        assert (decided.verdict, decided.revived, decided.notice) == (Verdict.ENTER, None, None)
    for found in torn:
        settled(found)
        assert (visits(found), told(found)) == (visits(expected), told(expected))
        assert step_of(found) == step_of(expected)
        assert index_of(found)["questions"] == 0


def test_a_run_that_died_before_its_first_stage_begins_in_it() -> None:
    """Also between the record that it entered it and the words that it is told."""
    whole = begun()
    for found in every_prefix(j.fold_all([j.started(agent=AGENT)]), [j.entered("plan")]):
        assert told(settled(found)) == told(whole)


def test_a_failed_run_that_a_human_brings_back_is_in_the_stage_in_which_it_failed() -> None:
    """With that stage's tools; and the visit goes on."""
    state = thinks(begun(), text("half"), stop_reason="max_tokens")
    j.fold_all([j.ended("failed"), j.revived("manual")], state)

    assert (visits(state), state.tools) == ([("plan", 1)], ["read_file", "transition"])
    assert state.ledger.visits[0].left is None
    assert step_of(thinks(state, text("The plan."))) == WaitForHuman(("q1",))


def test_a_run_that_is_over_has_left_its_stage_and_asks_nothing() -> None:
    """A cancelled run's question is not shown to anybody."""
    state = thinks(begun(), text("The plan."))
    j.fold_all([{"type": "CancelRequested", "by": "me"}], state)
    assert state.open_questions == []
    j.fold_all([RunEnded(status="cancelled", reason="x").to_json()], state)
    assert (state.ledger.now, index_of(state)["questions"]) == (None, 0)


@pytest.mark.parametrize(
    ("records", "said"),
    [
        ([j.entered("build")], "the run is in 'plan' still"),
        ([j.left("build")], "the run is not in 'build'"),
        ([j.left("plan", 2)], "the run is not in 'plan'"),
        ([j.left("plan"), j.left("plan")], "the run is not in 'plan'"),
        ([j.answered("q9", {})], "nobody asked 'q9'"),
        ([j.closed("q9")], "the question 'q9' is not there"),
        ([j.opened("q1", "ask", {}), j.opened("q1", "ask", {})], "the question 'q1' was asked before"),
        ([j.opened("q1", "ask", {}), j.closed("q1"), j.closed("q1")], "is not there or closed already"),
    ],
)
def test_a_record_that_does_not_fit_changes_nothing(records: list[Json], said: str) -> None:
    """Stages are entered and left in turn; questions are opened and closed once."""
    state = j.fold_all(records[:-1], begun())
    before = j.snapshot(state)

    with pytest.raises(BadRecord, match=said):
        j.fold_all(records[-1:], state)
    assert j.snapshot(state) == before


def test_what_is_ill_formed_in_a_pinned_definition_is_left_out() -> None:
    """A newer version may have written it; unknown members mean nothing."""
    stages = stages_of({"stages": [{"name": "a", "new": 1, "max_visits": None}, {"prompt": "x"}, "b", {"name": 5}]})

    assert list(stages) == ["a"]
    assert stages["a"].max_visits is None
    assert stages_of({"stages": None}) == stages_of({}) == {}
