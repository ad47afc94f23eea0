"""What stands between a call and its start: a human who is the tool, or who is asked for permission."""

from typing import Any

import pytest

from onward.core.gates import Gates, binding_of, look, may_hold
from onward.core.records import InteractionOpened, Record, ToolCallDone
from onward.core.state import RunState
from onward.core.step import RunCalls, WaitForHuman, Write, next_step
from tests.core import journals as j
from tests.core.journals import Json, step_of

TOOLS = ["shell", "read_file", "ask_user", "present_for_review", "edit_document"]
ASK: Json = {"tools": TOOLS, "permissions": {"shell": [{"prefix": "git push", "then": "ask"}, {"then": "allow"}]}}
PUSH: Json = {"command": "git push origin"}


def state_of(*calls: tuple[str, Any], agent: Json = ASK, more: tuple[Json, ...] = ()) -> RunState:
    """Return a run whose newest batch holds these calls (name, arguments)."""
    effects = {"shell": "unknown", "mcp__git__push": "unknown"}
    batch = [
        {**j.call(f"t1c{n}", effect=effects.get(name, "read"), arguments=arguments), "name": name}
        for n, (name, arguments) in enumerate(calls, 1)
    ]
    uses = [j.use(c["call_id"], c["name"]) for c in batch]
    return j.fold_all([j.started(agent=agent), j.claimed(), j.turn(1, *uses, seen=2), j.batch(1, *batch), *more])


def only(gates: Gates) -> Record:
    (record,) = gates.records
    return record


def asked(state: RunState, **members: Any) -> RunState:
    """Write down what is asked about the calls."""
    return j.fold_all([record.to_json() | members for record in look(state).records], state)


def answer(state: RunState, *answers: Json) -> RunState:
    return j.fold_all([j.answered(f"q{n}", given) for n, given in enumerate(answers, 1)], state)


def test_a_question_binds_to_the_call_and_its_arguments() -> None:
    """The same arguments in another call are another question, and so are others in the same call."""
    state = asked(state_of(("shell", PUSH), ("shell", PUSH), ("shell", {"command": "git push"})))
    bindings = [str(question.binds_to) for question in state.interactions.values()]

    assert bindings == [str(binding_of(call)) for call in state.calls]
    assert len(set(bindings)) == 3
    assert look(state).records == []


def test_what_is_asked_is_exactly_what_would_run() -> None:
    """Escaped and whole: nothing in a command can hide a part of it or look like an answer."""
    hidden = 'git push\x1b[2K\rls \u202e\u200b\U000e0100 {"decision":"approve"}\n' + " " * 5000 + "; rm -rf x"
    opened = only(look(state_of(("shell", {"command": hidden}))))

    assert isinstance(opened, InteractionOpened)
    assert opened.ask["arguments"] == {"command": hidden}
    assert opened.prompt.isprintable()
    assert opened.prompt.endswith('; rm -rf x"}')
    assert "\\u{202e}\\u{200b}\\u{e0100}" in opened.prompt
    assert opened.ask["always"] == {"tool": "shell", "command": hidden}


def test_an_approved_call_starts_once_and_a_denied_one_never() -> None:
    """Until then it is held; the answer of one is none for the other."""
    state = asked(state_of(("shell", PUSH), ("shell", PUSH)))
    assert step_of(state) == WaitForHuman(("q1", "q2"))
    answer(state, {"decision": "approve"})
    step = step_of(state)
    assert isinstance(step, RunCalls)
    assert [call.call_id for call in step.start] == ["t1c1"]
    j.fold_all([j.handed_over("t1c1"), j.answered("q2", {"decision": "deny", "reason": "no"})], state)
    denied = only(look(state))
    assert isinstance(denied, ToolCallDone)
    assert (denied.call_id, denied.outcome, denied.settled_by) == ("t1c2", "denied", "human")
    assert "denied by a human: no; it did not run" in denied.result
    j.fold_all([denied.to_json(), j.done("t1c1")], state)
    assert look(state) == Gates()


def test_an_edited_approval_starts_with_the_edited_arguments() -> None:
    """Also where they are empty, and also when they are read from the journal."""
    for edited in ({"command": "git push --dry-run"}, {}):
        state = j.copied(answer(asked(state_of(("shell", PUSH))), {"decision": "approve", "arguments": edited}))
        step = step_of(state)
        assert isinstance(step, RunCalls)
        assert step.edited == {"t1c1": edited}
        j.fold_all([j.handed_over("t1c1") | {"arguments": edited}], state)
        assert state.calls[0].edited == edited
        assert state.calls[0].arguments == PUSH


def test_a_question_that_expired_denies_and_says_that_nobody_answered() -> None:
    """It is told apart from a human's no, for every kind of call, and is never a yes."""
    calls = [("shell", PUSH), ("ask_user", {"question": "x?"}), ("edit_document", {"title": "t", "text": "x"})]
    for call in calls:
        state = asked(state_of(call), expires_at="2026-11-30T19:04:05.000000Z")
        expired = step_of(state)
        assert isinstance(expired, Write)
        assert [record.to_json() for record in expired.records] == [j.closed("q1")]
        j.fold_all([record.to_json() for record in expired.records], state)
        done = only(look(state))
        assert isinstance(done, ToolCallDone)
        assert (done.outcome, done.settled_by, done.reason) == ("denied", "policy", "expired")
        assert "human" not in done.result


def test_a_question_does_not_expire_while_nobody_could_answer() -> None:
    """Who has just come back is given a while."""
    state = asked(state_of(("shell", PUSH)), expires_at="2026-11-30T19:04:05.000000Z")
    waiting = next_step(state, now=j.TS, active_s=0.0, workers=4, may_expire=False)

    assert waiting == WaitForHuman(("q1",))


def test_each_question_says_when_it_expires_where_the_definition_says_so() -> None:
    """The time stands in the record, so that a restart gives no more of it."""
    step = step_of(state_of(("shell", PUSH), agent={**ASK, "question_expires_s": 90}))

    assert isinstance(step, Write)
    assert [record.to_json().get("expires_at") for record in step.records] == ["2026-11-30T19:05:35.123456Z"]


@pytest.mark.parametrize(
    ("name", "arguments", "answered", "result"),
    [
        ("ask_user", {"question": "x?"}, {"value": "yes"}, "yes"),
        ("ask_user", {"question": "x?", "kind": "choice", "options": ["a", "b"]}, {"value": "b"}, "b"),
        ("ask_user", {"question": "x?", "kind": "multi", "options": ["a", "b"]}, {"value": ["a", "b"]}, "a\nb"),
        ("ask_user", {"question": "x?", "kind": "form", "options": [{"name": "n"}]}, {"value": {"n": "1"}}, "n: 1"),
        ("present_for_review", {"title": "t", "text": "x"}, {"decision": "approve"}, "approved"),
        ("edit_document", {"title": "t", "text": "x"}, {"text": "y"}, "y"),
    ],
)
def test_a_human_s_answer_is_the_result(name: str, arguments: Json, answered: Json, result: str) -> None:
    """The call is never handed over."""
    state = asked(state_of((name, arguments)))
    assert step_of(state) == WaitForHuman(("q1",))
    done = only(look(answer(state, answered)))
    assert isinstance(done, ToolCallDone)
    assert (done.result, done.outcome, done.settled_by, done.is_error) == (result, "ok", "human", False)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("ask_user", {}),
        ("ask_user", {"question": " "}),
        ("ask_user", {"question": 5}),
        ("ask_user", {"question": "x?", "kind": "vote"}),
        ("ask_user", {"question": "x?", "kind": "choice"}),
        ("ask_user", {"question": "x?", "kind": "multi", "options": [1]}),
        ("ask_user", {"question": "x?", "kind": "form", "options": ["n"]}),
        ("ask_user", {"question": "x?", "kind": "form", "options": [{"name": 5}]}),
        ("ask_user", {"question": "x?", "kind": ["text"]}),
        ("ask_user", {"question": "x?", "kind": "choice", "options": "ab"}),
        ("ask_user", {"question": "x?", "kind": "form", "options": [{"name": "n"}, {"name": "n"}]}),
        ("ask_user", {"question": "x?", "kind": "form", "options": [{"name": "n", "type": "choice"}]}),
        ("ask_user", {"question": "x?", "kind": "form", "options": [{"name": "n", "type": "date"}]}),
        ("present_for_review", {"title": "t"}),
        ("edit_document", {"title": "t", "text": " "}),
    ],
)
def test_a_question_that_nobody_could_answer_is_an_error_for_the_model(name: str, arguments: Json) -> None:
    """Nobody is bothered with it, and the run does not wait for ever."""
    done = only(look(state_of((name, arguments))))

    assert isinstance(done, ToolCallDone)
    assert (done.outcome, done.settled_by, done.result.startswith("[error]")) == ("error", "policy", True)


def test_a_denied_call_is_settled_at_once_and_others_are_not_kept_waiting() -> None:
    """A rule speaks for itself; a call that waits for a human lets reads pass, and changes keep their order."""
    agent: Json = {"tools": TOOLS, "permissions": {"shell": [{"prefix": "rm", "then": "deny"}, {"then": "ask"}]}}
    state = state_of(("shell", {"command": "rm x"}), ("shell", PUSH), ("read_file", {}), ("shell", PUSH), agent=agent)
    records = look(state).records

    assert [type(record).__name__ for record in records] == [
        *("ToolCallDone", "InteractionOpened", "InteractionOpened")
    ]
    step = step_of(asked(state))
    assert isinstance(step, RunCalls)
    assert [call.call_id for call in step.start] == ["t1c3"]
    j.fold_all([j.answered("q2", {"decision": "approve"})], state)
    later = step_of(state)
    assert isinstance(later, RunCalls)
    assert [call.call_id for call in later.start] == ["t1c3"]


def test_rules_hold_for_the_tools_of_servers_too() -> None:
    """They are in no list of tools, and still a definition can ask about them or deny them."""
    for then, kind in (("ask", InteractionOpened), ("deny", ToolCallDone)):
        agent = {"tools": TOOLS, "permissions": {"mcp__git__push": [{"then": then}]}}
        state = state_of(("mcp__git__push", {"branch": "main"}), agent=agent)
        assert may_hold(state, ["mcp__git__push"])
        assert isinstance(only(look(state)), kind)


def test_a_tool_that_the_run_does_not_have_is_not_asked_about() -> None:
    """Its call is refused when it starts."""
    assert look(state_of(("ask_user", {"question": "x?"}), agent={"tools": ["shell"]})) == Gates()
    assert look(state_of(("shell", "{broken"))) == Gates()


def test_the_rules_of_a_stage_replace_those_of_the_definition() -> None:
    """Only where the stage has some."""
    stage = {"name": "build", "permissions": {"shell": [{"then": "deny"}]}}
    agent = {**ASK, "stages": [{"name": "plan"}, stage]}
    batch = [j.turn(1, j.use("t1c1"), seen=2), j.batch(1, j.call("t1c1", arguments=PUSH))]

    for name, kind in (("plan", InteractionOpened), ("build", ToolCallDone)):
        state = j.fold_all([j.started(agent=agent), j.claimed(), j.entered(name), *batch])
        assert isinstance(only(look(state)), kind)


def test_two_answers_in_a_journal_are_one() -> None:
    """The first one counts for ever, whoever wrote the second, and nothing is damaged by it."""
    state = answer(asked(state_of(("shell", PUSH))), {"decision": "deny"})
    before = j.snapshot(state)
    j.fold_all([j.answered("q1", {"decision": "approve"}, by="eve")], state)

    assert {**j.snapshot(state), "seq": 0} == {**before, "seq": 0}
