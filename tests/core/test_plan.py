"""The tool-call delivery contract: each call of the newest batch is settled once, by the first row that matches."""

from collections.abc import Sequence

import pytest

from onward.core.plan import Evidence, Found, Policy, RecoveryPlan, plan
from onward.core.records import Record, ToolBatch, ToolCallDone
from onward.core.state import RunState
from onward.core.vocabulary import Outcome, SettledBy
from tests.core import journals as j
from tests.core.journals import BOOT, Json, text, use

HERE = Policy(boot_id=BOOT)
REBOOTED = Policy(boot_id="boot-2")
REAL = ToolCallDone(
    call_id="t1c1", outcome=Outcome.OK, result="real", is_error=False, settled_by=SettledBy.TOOL,
    duration_s=1.0, reason="completed-unpersisted",
)  # fmt: skip


def asked(*calls: str) -> list[Json]:
    """Return a turn that asks for these calls, and its batch."""
    return [j.turn(1, *(use(call_id) for call_id in calls), seen=2), j.batch(1, *calls)]


def folded(*records: Json) -> RunState:
    return j.fold_all([j.started(), j.claimed(), *records])


def planned(*records: Json, policy: Policy = HERE, **evidence: Evidence) -> RecoveryPlan:
    return plan(folded(*records), evidence, policy)


def settled(records: Sequence[Record]) -> list[tuple[str, str]]:
    return [(record.call_id, record.outcome) for record in records if isinstance(record, ToolCallDone)]


NOT_HANDED_OVER, HANDED_OVER = asked("t1c1"), [*asked("t1c1"), j.handed_over("t1c1")]
SO_FAR = {"output_so_far": "step 1 of 9"}

CONTRACT: list[tuple[str, list[Json], Policy, Evidence | None, str | None]] = [
    ("never handed over", NOT_HANDED_OVER, HERE, None, "not_started"),
    ("never handed over, nothing found", NOT_HANDED_OVER, HERE, Evidence(found=Found.NOTHING), "not_started"),
    ("handed over, in process", HANDED_OVER, HERE, None, "interrupted"),
    ("handed over, nothing found", HANDED_OVER, HERE, Evidence(found=Found.NOTHING), "interrupted"),
    ("handed over, lost", HANDED_OVER, HERE, Evidence(found=Found.LOST, boot_id=BOOT), "interrupted"),
    ("its directory is there", NOT_HANDED_OVER, HERE, Evidence(found=Found.LOST), "interrupted"),
    ("fenced in its boot", HANDED_OVER, HERE, Evidence(found=Found.FENCED, boot_id=BOOT), "not_started"),
    ("fenced after a reboot", HANDED_OVER, REBOOTED, Evidence(found=Found.FENCED, boot_id="boot-2"), "interrupted"),
    ("fenced, boot unknown", HANDED_OVER, HERE, Evidence(found=Found.FENCED), "interrupted"),
    ("alive", HANDED_OVER, HERE, Evidence(found=Found.ALIVE), None),
    ("its end was recorded", HANDED_OVER, HERE, Evidence(found=Found.RESULT, done=REAL), "ok"),
    ("lost in a reboot", HANDED_OVER, REBOOTED, Evidence(found=Found.LOST, boot_id=BOOT), "interrupted"),
]


@pytest.mark.parametrize(
    ("records", "policy", "evidence", "outcome"), [row[1:] for row in CONTRACT], ids=[row[0] for row in CONTRACT]
)
def test_a_call_is_settled_by_its_evidence(
    records: list[Json], policy: Policy, evidence: Evidence | None, outcome: str | None
) -> None:
    """Each row of the contract: what was handed over is unknown unless its end or its fence proves more."""
    decided = plan(folded(*records), {"t1c1": evidence} if evidence else {}, policy)

    assert settled(decided.settlements) == ([("t1c1", outcome)] if outcome else [])
    assert decided.adopt == (() if outcome else ("t1c1",))
    assert decided.verdict == "enter"


def test_a_real_result_that_was_not_journaled_is_delivered_as_it_is() -> None:
    """It wins over every guess, and says how it came."""
    decided = planned(*HANDED_OVER, t1c1=Evidence(found=Found.RESULT, done=REAL))

    assert decided.settlements == (REAL,)


def test_an_interrupted_call_is_told_honestly() -> None:
    """An error that says: interrupted, unknown whether it took effect, not retried, verify; in this order."""
    (done,) = planned(*HANDED_OVER, t1c1=Evidence(found=Found.LOST, facts=SO_FAR)).settlements

    assert isinstance(done, ToolCallDone)
    assert (done.is_error, done.settled_by, done.evidence) == (True, "recovery", SO_FAR)
    assert done.result.startswith("[error] interrupted: the previous session ended while this call was in flight")
    said = [
        done.result.index(part) for part in ("unknown", "NOT been retried", "Verify", "half written", "step 1 of 9")
    ]
    assert said == sorted(said)


def test_a_call_that_did_not_run_is_told_so() -> None:
    """Not started, no effect, safe to ask again."""
    (done,) = planned(*NOT_HANDED_OVER).settlements

    assert isinstance(done, ToolCallDone)
    assert (done.is_error, done.settled_by) == (True, "recovery")
    assert done.result.startswith("[error] not started:")
    assert "did not run" in done.result
    assert "safe to ask" in done.result


def test_a_batch_is_settled_in_model_order_and_only_where_it_is_open() -> None:
    """Closed, in flight and untouched calls of one batch: each its own row; what is journaled is never touched."""
    records = [*asked("t1c1", "t1c2", "t1c3", "t1c4"), j.handed_over("t1c4"), j.handed_over("t1c2"), j.done("t1c1")]
    records.append(j.handed_over("t1c1"))

    assert settled(planned(*records).settlements) == [
        ("t1c2", "interrupted"), ("t1c3", "not_started"), ("t1c4", "interrupted"),
    ]  # fmt: skip


def test_older_turns_are_settled_in_the_view_only() -> None:
    """A hole in the middle gets no record: the run has gone on."""
    records = [*HANDED_OVER, j.turn(2, use("x"), seen=5), j.batch(2, "t2c1")]

    assert settled(planned(*records).settlements) == [("t2c1", "not_started")]


def test_a_provider_id_used_before_meets_no_older_result() -> None:
    """Matching is by our id: the equal provider id of an answered turn settles nothing."""
    first = [j.turn(1, use("call_1"), seen=2), j.batch(1, j.call("t1c1", "call_1")), j.done("t1c1")]
    second = [j.turn(2, use("call_1"), seen=5), j.batch(2, j.call("t2c1", "call_1")), j.handed_over("t2c1")]

    assert settled(planned(*first, *second).settlements) == [("t2c1", "interrupted")]


def test_a_turn_without_its_batch_started_nothing() -> None:
    """The intent is written down first, then each of its calls is settled as not started."""
    decided = planned(j.turn(1, text("x"), use("a", "read", path="f"), use("b"), seen=2))
    batch = decided.settlements[0]

    assert isinstance(batch, ToolBatch)
    assert [(c["call_id"], c["provider_id"], c["name"], c["arguments"]) for c in batch.calls] == [
        ("t1c1", "a", "read", {"path": "f"}), ("t1c2", "b", "shell", {}),
    ]  # fmt: skip
    assert settled(decided.settlements) == [("t1c1", "not_started"), ("t1c2", "not_started")]


def damaged(*behind: Json) -> RunState:
    """Return a run whose journal lost a record behind its newest batch, and that a human let go on."""
    lost = j.Journal().add(j.started(), j.claimed(), *NOT_HANDED_OVER).skip()
    return j.replay(lost.add(*behind, j.revived("manual"))).state


def test_absence_beside_a_gap_proves_nothing() -> None:
    """The hand-over may lie in the gap: interrupted, never `not started`."""
    assert settled(plan(damaged(), {}, HERE).settlements) == [("t1c1", "interrupted")]


def test_a_missing_batch_beside_a_gap_proves_nothing_either() -> None:
    """The batch, and what it started, may lie in the gap."""
    lost = j.Journal().add(j.started(), j.claimed(), j.turn(1, use("a"), seen=2)).skip().add(j.revived("manual"))

    assert settled(plan(j.replay(lost).state, {}, HERE).settlements) == [("t1c1", "interrupted")]


def test_a_fence_and_a_result_prove_what_a_gap_cannot_hide() -> None:
    """Evidence of the world is as good beside damage as elsewhere."""
    state = damaged()
    fenced = plan(state, {"t1c1": Evidence(found=Found.FENCED, boot_id=BOOT)}, HERE)
    real = plan(state, {"t1c1": Evidence(found=Found.RESULT, done=REAL)}, HERE)

    assert settled(fenced.settlements) == [("t1c1", "not_started")]
    assert settled(real.settlements) == [("t1c1", "ok")]


@pytest.mark.parametrize("found", [Found.LOST, Found.ALIVE, Found.RESULT, Found.NOTHING])
def test_a_settled_call_is_never_settled_again(found: Found) -> None:
    """Whatever the world shows later, the journaled result stays the only one."""
    records = [*HANDED_OVER, j.done("t1c1", "lost", "interrupted", "recovery")]
    decided = planned(*records, t1c1=Evidence(found=found, done=REAL))

    assert (decided.settlements, decided.adopt) == ((), ())


@pytest.mark.parametrize(
    ("allowed", "effect", "name", "again"),
    [
        (True, "read", "read_file", True),
        (False, "read", "read_file", False),
        (True, "write", "edit_file", False),
        (True, "idempotent", "write_file", False),
        (True, "unknown", "shell", False),
        (True, "read", "mcp__files__read", False),
    ],
)
def test_only_our_own_reads_are_done_again_and_only_where_the_definition_says_so(
    allowed: bool, effect: str, name: str, again: bool
) -> None:
    """With `rerun_reads` an interrupted read is open again after the claim; any other call is settled, never rerun."""
    call = j.call("t1c1", effect=effect) | {"name": name}
    records = [j.claimed(), j.turn(1, use("t1c1"), seen=2), j.batch(1, call), j.handed_over("t1c1")]
    state = j.fold_all([j.started(agent={"rerun_reads": allowed}), *records])

    assert (settled(plan(state, {}, HERE).settlements) == []) is again
    j.fold_all([j.claimed(epoch=2)], state)
    assert [call.started for call in state.open_calls] == [not again]
