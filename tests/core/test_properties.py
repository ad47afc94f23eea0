"""What holds for every history that a daemon can leave behind, wherever it died."""

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onward.core import fold
from onward.core.gates import question_of
from onward.core.plan import Policy, plan
from onward.core.records import ToolCallDone
from onward.core.replay import Replayer
from onward.core.state import RunState
from onward.testing.strict import check_request
from tests.core import journals as j
from tests.core.acting import Daemon, as_line, evidence, histories, recovery_records
from tests.core.journals import Json

EXAMPLES = int(os.environ.get("ONWARD_HYPOTHESIS_EXAMPLES", "100"))
many = settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))

ENDS = {"completed", "failed", "cancelled"}


def states_of(records: list[Json]) -> list[RunState]:
    """Return copies of the state after each record."""
    state, states = RunState(), []
    for record in records:
        fold.apply(state, record)
        states.append(j.copied(state))
    return states


@many
@given(histories())
def test_replay_gives_the_state_that_the_live_run_had(daemon: Daemon) -> None:
    """The journal says everything: a process that reads it knows what the one that wrote it knew."""
    assert j.replay(daemon.data).state == states_of(daemon.records)[-1]
    if daemon.alive:
        assert j.replay(daemon.data).state == daemon.state


@many
@given(histories(), st.integers(0, 200))
def test_a_fold_can_be_interrupted_anywhere(daemon: Daemon, at: int) -> None:
    """The state after the first records, carried over by a Checkpoint, and the rest make the whole."""
    at %= len(daemon.records)
    whole = states_of(daemon.records)
    state = j.copied(whole[at])
    assert state == whole[at]
    for record in daemon.records[at + 1 :]:
        fold.apply(state, record)

    assert state == whole[-1]


@many
@given(histories())
def test_every_checkpoint_is_as_good_as_the_beginning(daemon: Daemon) -> None:
    """A reader that starts at a Checkpoint comes to the same state, end and offsets."""
    lines = [as_line(record) for record in daemon.records]
    whole = j.replay(b"".join(lines))
    for at, record in enumerate(daemon.records):
        if record["type"] == "Checkpoint":
            offset = sum(map(len, lines[:at]))
            replayer = Replayer.from_checkpoint(offset, lines[at], lambda _: None)
            assert replayer is not None
            assert j.feed(replayer, b"".join(lines[at + 1 :])).state == whole.state


@many
@given(histories())
def test_every_state_of_a_life_has_a_request_that_providers_take(daemon: Daemon) -> None:
    """Whenever the run died, its next request breaks no rule."""
    for state in states_of(daemon.records):
        assert check_request(state.conversation.request()) == []


@many
@given(histories())
def test_no_call_is_handed_over_twice_and_none_that_is_settled(daemon: Daemon) -> None:
    """Whatever happened in between, no effect can run a second time."""
    handed_over: set[str] = set()
    settled: set[str] = set()
    for record in daemon.records:
        if record["type"] == "ToolCallStarted":
            assert record["call_id"] not in handed_over | settled
            handed_over.add(record["call_id"])
        elif record["type"] == "ToolCallDone":
            settled.add(record["call_id"])


@many
@given(histories())
def test_a_call_has_one_settlement_and_keeps_its_first_result(daemon: Daemon) -> None:
    """Recovery settles what nobody settled, and no later record changes a result."""
    first: dict[str, tuple[str, str]] = {}
    state = RunState()
    for record in daemon.records:
        if record["type"] == "ToolCallDone":
            if record["settled_by"] == "recovery":
                assert record["call_id"] not in first
            first.setdefault(record["call_id"], (record["outcome"], record["result"]))
        fold.apply(state, record)
        for call in state.calls:
            if call.outcome is not None:
                assert (call.outcome, call.result) == first[call.call_id]


@many
@given(histories())
def test_between_two_notices_the_run_has_thought(daemon: Daemon) -> None:
    """One notice per interruption, not one per attempt."""
    told = False
    for record in daemon.records:
        if record["type"] == "AssistantTurn":
            told = False
        elif record["type"] == "MessageAdded" and record["source"] == "revival":
            assert not told
            told = True


@many
@given(histories())
def test_no_message_is_lost_or_reordered(daemon: Daemon) -> None:
    """Everything that was said stands in the next request, once, in its order."""
    said = [r["content"] for r in daemon.records if r["type"] == "MessageAdded" and r["content"].strip()]
    known = set(said)
    blocks = [block for message in j.replay(daemon.data).state.conversation.request() for block in message["content"]]

    assert [block["text"] for block in blocks if block["type"] == "text" and block["text"] in known] == said


@many
@given(histories())
def test_no_illegal_transition_is_ever_made(daemon: Daemon) -> None:
    """Completed and cancelled are for ever, failed but for a human; a run that is not cancelled owes nothing."""
    before = RunState()
    for record, state in zip(daemon.records, states_of(daemon.records), strict=True):
        if before.status in ENDS and state.status != before.status:
            assert (before.status, state.status) == ("failed", "active")
            assert (record["type"], record["cause"]) == ("RunRevived", "manual")
        if record["type"] == "RunEnded" and record["status"] != "cancelled":
            assert not before.open_calls
            assert not before.conversation.unseen()
        before = state


@many
@given(histories())
def test_an_answered_question_never_opens_again_and_an_open_one_is_never_asked_twice(daemon: Daemon) -> None:
    """At most one question of each binding is open, and a first answer is the answer for ever."""
    answers: dict[str, Json] = {}
    state = RunState()
    for record in daemon.records:
        if record["type"] == "InteractionOpened":
            assert record["interaction_id"] not in state.interactions
            assert record["binds_to"] not in [question.binds_to for question in state.open_questions]
        fold.apply(state, record)
        for question in state.interactions.values():
            if question.answer is not None:
                assert answers.setdefault(question.interaction_id, question.answer) == question.answer
        assert set(answers) & {question.interaction_id for question in state.open_questions} == set()


@many
@given(histories())
def test_nothing_that_a_human_did_not_allow_is_handed_over(daemon: Daemon) -> None:
    """A call about which somebody was asked starts behind an approval only, with the arguments that were approved."""
    state = RunState()
    for record in daemon.records:
        if record["type"] == "ToolCallStarted":
            call = next(call for call in state.calls if call.call_id == record["call_id"])
            question = question_of(state, call)
            allowed = state.allows(call.name)  # else it is answered with an error: the stage has no such tool
            asked = allowed and call.arguments == {"command": "git push"} and state.agent.get("permissions")
            assert (question is not None) == bool(asked)
            if question is not None:
                assert question.decision == "approve"
                assert record.get("arguments") == (question.answer or {}).get("arguments")
            assert not allowed or call.arguments != {"command": "rm x"}
            assert call.name != "ask_user"
        fold.apply(state, record)


@many
@given(histories())
def test_a_stage_with_a_checkpoint_is_left_behind_its_approvals_only(daemon: Daemon) -> None:
    """Or behind a failure; and a run is in one stage at a time, with that one's tools."""
    state = RunState()
    for record in daemon.records:
        if record["type"] == "StageLeft":
            stage, visit = state.stage, state.ledger.now
            assert stage is not None
            assert visit is not None
            asked = [q for q in state.interactions.values() if q.kind == "checkpoint" and q.opened_seq > state.turn_seq]
            approved = [question.decision in ("approve", "edit") for question in asked]
            failed = state.finish is not None and state.finish.ends_run == "failed"
            assert failed or (len(approved), all(approved)) == (len(stage.checkpoint), True)
        fold.apply(state, record)
        if state.agent.get("stages") and state.turns and state.status == "active":
            assert state.ledger.now is not None or state.ledger.visits[-1].to


def torn_tails(draw: st.DrawFn, daemon: Daemon) -> tuple[bytes, list[Json]]:
    """Return a journal damaged behind its highest `dur`, and the records that stand before the damage."""
    records = daemon.records[: draw(st.integers(1, len(daemon.records)))]
    lines = [as_line(record) for record in records]
    durable = sum(map(len, lines[: max(record["dur"] for record in records)]))
    data = b"".join(lines)
    at = draw(st.integers(max(durable, len(lines[0])), len(data)))
    kind = draw(st.sampled_from(("cut", "zeros", "hole", "garbage")))
    hole = draw(st.integers(1, 400))
    tail = {
        "cut": b"",
        "zeros": b"\x00" * (len(data) - at),
        "hole": b"\x00" * len(data[at : at + hole]) + data[at + hole :],
        "garbage": draw(st.binary(max_size=50)),
    }[kind]
    whole, end = 0, 0
    for text in lines:
        end += len(text)
        if end <= at or (end == at + 1 and tail[:1] in (b"", b"\n")):
            whole += 1
    return data[:at] + tail, records[:whole]


@many
@given(st.data(), histories(), st.integers(0, 63))
def test_any_torn_tail_is_recovered_from(data: st.DataObject, daemon: Daemon, n: int) -> None:
    """Cut, zeroed, holed or overwritten behind what was durable: what stands before it is the run, and it goes on."""
    damaged, records = data.draw(st.composite(torn_tails)(daemon))
    replayed = j.replay(damaged)

    assert replayed.state == states_of(records)[-1]
    assert damaged[: replayed.end].rstrip(b"\n") == b"".join(map(as_line, records)).rstrip(b"\n")

    recovers_once(replayed.state, n)


def recovers_once(state: RunState, n: int) -> None:
    """Recover a run twice; the second time settles, tells and writes nothing but the attempt itself."""
    policy = Policy(boot_id="boot-9", max_stalled_revivals=99)
    open_before = {call.call_id for call in state.open_calls}
    asked = {call.call_id for call in state.open_calls if not call.started and question_of(state, call)}
    questions = {name: (question.answer, question.closed) for name, question in state.interactions.items()}
    decided = plan(state, evidence(state, n, policy), policy)
    settled = [record.call_id for record in decided.settlements if isinstance(record, ToolCallDone)]
    assert len(settled) == len(set(settled))
    j.fold_all(recovery_records(state, decided, policy.boot_id), state)
    left = asked | set(decided.adopt) if settled or decided.adopt else open_before
    assert questions.items() <= {k: (q.answer, q.closed) for k, q in state.interactions.items()}.items()
    assert state.cancel_by or {call.call_id for call in state.open_calls} == left

    again = plan(state, evidence(state, n, policy), policy)
    assert (again.settlements, again.adopt) == ((), decided.adopt if again.verdict == "enter" else ())
    assert again.notice is None or decided.notice is None
    assert check_request(state.conversation.request()) == []


@many
@given(histories(), st.integers(0, 63), st.integers(1, 8))
def test_a_recovery_that_dies_anywhere_can_be_repeated(daemon: Daemon, n: int, written: int) -> None:
    """Only the beginning of the plan's records was written: the next recovery writes what is missing, nothing twice."""
    policy = Policy(boot_id="boot-9", max_stalled_revivals=99)
    state = j.replay(daemon.data).state
    decided = plan(state, evidence(state, n, policy), policy)
    j.fold_all(recovery_records(state, decided, policy.boot_id)[:written], state)
    settled = {call.call_id for call in state.calls if call.outcome is not None}
    told = state.told
    again = plan(state, evidence(state, n, policy), policy)

    assert not settled & {record.call_id for record in again.settlements if isinstance(record, ToolCallDone)}
    assert again.notice is None or not told


@pytest.mark.parametrize("word", ["answer", "start", "boot", "drain", "checkpoint"])
def test_histories_are_not_empty(word: str) -> None:
    """The pretend daemon does what the properties are about, so that they do not hold for want of histories."""
    daemon = Daemon()
    for n, move in enumerate(["boot", "request", "answer", "start", "checkpoint", "drain", "boot", "answer"] * 3):
        daemon.act(move, n)
    wanted = {"answer": "ToolBatch", "start": "ToolCallStarted", "boot": "RunClaimed", "drain": "DaemonDraining"}

    assert wanted.get(word, "Checkpoint") in {record["type"] for record in daemon.records}
