"""The fold: what each record changes, and that a record which does not fit changes nothing."""

from typing import Any

import pytest

from onward.core.fold import NewerRecord, apply, note_damage
from onward.core.records import BadRecord
from onward.core.state import RunState
from tests.core import journals as j

LATER = "2026-12-01T00:00:00.000000Z"
BEGUN = [j.started(), j.claimed()]
ASKED = [*BEGUN, j.turn(1, j.use("p1"), j.use("p2"), seen=2), j.batch(1, "t1c1", "t1c2")]


def state_of(*records: j.Json) -> RunState:
    return j.fold_all(records)


def test_a_started_run_is_active_and_holds_its_task() -> None:
    """RunStarted pins the definition; the run is to make its first request."""
    state = state_of(j.started(model="m2", parent="worker-0", depth=1, idempotency_key="k"))

    assert (state.run_id, state.kind, state.agent_name, state.agent, state.task) == (
        "worker-1", "native", "worker", {"model": "m"}, j.TASK,
    )  # fmt: skip
    assert (state.model, state.parent, state.depth, state.idempotency_key) == ("m2", "worker-0", 1, "k")
    assert (state.status, state.phase, state.seq, state.created_at) == ("active", "ready_to_infer", 1, j.TS)
    assert state.conversation.request() == [{"role": "user", "content": [j.text(j.TASK)]}]


def test_a_claim_replaces_the_older_one_and_forgets_its_drain() -> None:
    """The newest claim counts; a drain before it is no clean shutdown of the new process."""
    state = state_of(*BEGUN, j.draining("t1c1"), j.claimed("boot-2", epoch=2))

    assert state.claim is not None
    assert (state.claim["boot_id"], state.claim["epoch"], state.claims) == ("boot-2", 2, 2)
    assert (state.drained, state.in_flight) == (False, [])


def test_a_drain_is_kept_with_what_was_in_flight() -> None:
    """After a clean shutdown the run knows what was running, and that no request is out."""
    state = state_of(*BEGUN, j.inferring(), j.draining("t1c1"))

    assert (state.drained, state.in_flight, state.phase) == (True, ["t1c1"], "ready_to_infer")
    assert state.totals.active_s == 9.0


@pytest.mark.parametrize(
    ("causes", "attempts", "charged"),
    [
        (["crash"], 1, 1),
        (["crash", "reboot", "restart"], 3, 2),
        (["crash", "crash", "manual"], 3, 0),
        (["crash", "manual", "crash"], 3, 1),
    ],
)
def test_crash_and_reboot_are_charged_and_a_human_starts_the_counts_anew(
    causes: list[str], attempts: int, charged: int
) -> None:
    """RunRevived is counted always, charged by its cause, and a manual one sets the charge back."""
    state = state_of(*BEGUN, *(j.revived(cause, n) for n, cause in enumerate(causes, 1)))

    assert (state.revival_attempts, state.totals.revivals) == (attempts, attempts)
    assert (state.charged_revivals, state.stalled_revivals) == (charged, charged)


@pytest.mark.parametrize(
    ("record", "stalled"),
    [
        (j.done("t1c1"), 0),
        (j.turn(2, j.text("x"), seen=9), 0),
        (j.done("t1c1", outcome="interrupted", settled_by="recovery"), 1),
        (j.said("hello", source="revival"), 1),
        (j.inferring(), 1),
        (j.failed(), 1),
    ],
)
def test_progress_is_a_turn_or_a_result_of_a_tool(record: j.Json, stalled: int) -> None:
    """What recovery itself writes is no progress, so that a run which only gets revived is seen."""
    state = state_of(*ASKED, j.handed_over("t1c1"), j.revived(), record)

    assert (state.stalled_revivals, state.charged_revivals) == (stalled, 1)


def test_a_message_waits_until_a_turn_has_seen_it() -> None:
    """What was said stays pending; a notice is remembered until the run has thought."""
    state = state_of(*BEGUN, j.said("one"), j.said("notice", source="revival"))
    assert (state.conversation.unseen(), state.told) == (True, True)

    j.fold_all([j.turn(1, j.text("x"), seen=3)], state)
    assert (state.conversation.unseen(), state.told) == (True, False)

    j.fold_all([j.turn(2, j.text("x"), seen=5)], state)
    assert not state.conversation.unseen()


def test_a_request_and_its_failures_are_counted_until_the_turn() -> None:
    """Attempts and failures belong to the request that is being tried; a turn ends them."""
    state = state_of(*BEGUN, j.inferring(1), j.failed(LATER), j.inferring(2), j.failed(LATER))
    assert (state.attempts, state.failures, state.retry_at, state.phase) == (2, 2, LATER, "ready_to_infer")

    j.fold_all([j.inferring(3, active_s=7.0)], state)
    assert (state.phase, state.retry_at, state.totals.active_s) == ("inferring", None, 7.0)

    j.fold_all([j.turn(1, j.text("x"), seen=2)], state)
    assert (state.attempts, state.failures, state.phase) == (0, 0, "ready_to_infer")


def test_turns_are_summed_up() -> None:
    """Tokens, cost and the turn count are those of all turns."""
    state = state_of(*BEGUN, j.turn(1, j.text("x"), seen=2), j.turn(2, j.text("y"), seen=3, active_s=8.5))

    assert (state.turns, state.turn_seq, state.totals.active_s) == (2, 4, 8.5)
    assert (state.totals.tokens_in, state.totals.tokens_out, state.totals.cost_usd) == (20, 10, 0.5)


def test_usage_of_other_types_counts_nothing() -> None:
    """What a provider reports in another form does not stop the fold."""
    usage = {"input_tokens": None, "output_tokens": "many"}
    state = state_of(*BEGUN, j.turn(1, j.text("x"), seen=2, usage=usage))

    assert (state.totals.tokens_in, state.totals.tokens_out) == (0, 0)


def test_a_batch_opens_its_calls_and_results_close_them() -> None:
    """A call is open until its first ToolCallDone; the boot of its hand-over is kept."""
    state = state_of(*ASKED)
    assert ([call.call_id for call in state.open_calls], state.phase) == (["t1c1", "t1c2"], "running_tools")
    assert state.totals.tool_calls == 2

    j.fold_all([j.handed_over("t1c2"), j.done("t1c2", "two")], state)
    assert [(c.started, c.boot_id, c.outcome, c.result) for c in state.calls] == [
        (False, None, None, ""),
        (True, j.BOOT, "ok", "two"),
    ]


@pytest.mark.parametrize("settled_by", ["tool", "recovery", "human", "policy"])
def test_the_first_result_of_a_call_is_its_result_for_ever(settled_by: str) -> None:
    """A later ToolCallDone is a note and changes neither outcome nor text."""
    state = state_of(*ASKED, j.handed_over("t1c1"), j.done("t1c1", "lost", "interrupted", "recovery"))
    j.fold_all([j.done("t1c1", "late", settled_by=settled_by)], state)

    assert (state.calls[0].outcome, state.calls[0].result, state.damage) == ("interrupted", "lost", [])


def test_a_result_of_an_older_turn_settles_nothing() -> None:
    """Ids are unique in the run, so a late result cannot meet a call of the newest turn."""
    state = state_of(*ASKED, j.turn(2, j.use("p1"), seen=4), j.batch(2, "t2c1"), j.done("t1c1", "late"))

    assert [call.outcome for call in state.calls] == [None]


@pytest.mark.parametrize(
    ("record", "status", "reason", "needs"),
    [
        (j.control("RunPaused"), "paused", "because", None),
        (j.control("RunQuarantined"), "quarantined", "because", None),
        (j.parked("disk"), "parked", "because", "disk"),
        (j.ended("failed"), "failed", "because", None),
        (j.ended("cancelled"), "cancelled", "because", None),
        (j.ended("completed", result="42"), "completed", "because", None),
    ],
)
def test_control_records_set_the_status_and_its_reason(
    record: j.Json, status: str, reason: str, needs: str | None
) -> None:
    """The status, why, and what would change it stand in the state; no request is out any more."""
    state = state_of(*BEGUN, j.inferring(), record)

    assert (state.status, state.reason, state.needs, state.inferring) == (status, reason, needs, False)
    assert state.result == record.get("result")


@pytest.mark.parametrize("back", [j.control("RunResumed"), j.revived("manual")])
def test_a_run_that_goes_on_needs_nothing(back: j.Json) -> None:
    """Resumed or revived, the old reason is gone."""
    state = state_of(*BEGUN, j.parked(retry_at=LATER), back)

    assert (state.status, state.reason, state.needs, state.retry_at) == ("active", None, None, None)


def test_an_unknown_type_is_counted_and_ignored() -> None:
    """Old code reads new journals: only seq and time move."""
    before, after = state_of(*BEGUN), state_of(*BEGUN)
    apply(after, {"seq": 3, "ts": LATER, "type": "GrantAdded", "must": False})

    assert (after.seq, after.updated_at) == (3, LATER)
    assert {**j.snapshot(after), "seq": 2, "updated_at": j.TS} == j.snapshot(before)


@pytest.mark.parametrize(
    "record",
    [{"type": "GrantRevoked", "must": True}, j.started(schema=2), {"type": "RunStarted", "schema": 2, "who": "knows"}],
)
def test_what_a_newer_version_must_not_lose_is_refused_by_name(record: j.Json) -> None:
    """An unknown type with `must`, and a newer schema whatever its members are, stop this version."""
    state = RunState() if record["type"] == "RunStarted" else state_of(*BEGUN)
    before = j.snapshot(state)

    with pytest.raises(NewerRecord):
        apply(state, {"seq": state.seq + 1, "ts": LATER, **record})
    assert j.snapshot(state) == before


UNFIT: list[tuple[str, list[j.Json], j.Json]] = [
    ("a second start", BEGUN, j.started(run_id="worker-2")),
    ("an ill-typed member", BEGUN, j.said("x") | {"content": 5}),
    ("a message that is there", [*BEGUN, j.said("x")], j.said("x")),
    ("a block that is no object", BEGUN, j.turn(1, seen=2) | {"content": ["x"]}),
    ("turn 0", BEGUN, j.turn(0, j.text("x"), seen=2)),
    ("a turn without end", BEGUN, j.turn(10**12, j.text("x"), seen=2)),
    ("a call that is no object", ASKED[:3], j.batch(1) | {"calls": [5]}),
    ("a call without id", ASKED[:3], j.batch(1, {"name": "shell"})),
    ("a call id that leaves its directory", ASKED[:3], j.batch(1, "../../x")),
    ("an empty call id", ASKED[:3], j.batch(1, "")),
    ("a call id twice", ASKED[:3], j.batch(1, "t1c1", "t1c1")),
    ("arguments that are a list", ASKED[:3], j.batch(1, j.call("t1c1", arguments=[]))),
    ("a hand-over of no call", ASKED, j.handed_over("t1c9")),
    ("an end that is none", ASKED, j.done("t1c1", ends_run="active")),
    ("an end that is no word", BEGUN, j.ended("bogus")),
    ("an end that goes on", BEGUN, j.ended("paused")),
    ("a second end", [*BEGUN, j.ended()], j.ended("failed")),
    ("a pause after the end", [*BEGUN, j.ended()], j.control("RunPaused")),
    ("a revival by the daemon after the end", [*BEGUN, j.ended("failed")], j.revived()),
    ("a revival of a completed run", [*BEGUN, j.ended()], j.revived("manual")),
]


@pytest.mark.parametrize(("before", "record"), [row[1:] for row in UNFIT], ids=[row[0] for row in UNFIT])
def test_a_record_that_does_not_fit_changes_nothing(before: list[j.Json], record: j.Json) -> None:
    """It is reported, and the state is the one from before, so that folding can go on."""
    state, untouched = state_of(*before), j.snapshot(state_of(*before))

    with pytest.raises(BadRecord):
        j.fold_all([record], state)
    assert j.snapshot(state) == untouched


def test_a_lower_turn_number_does_not_turn_the_count_back() -> None:
    """Call ids are unique for ever and limits are not laundered, also where a journal is out of order."""
    state = state_of(*BEGUN, j.turn(5, j.text("x"), seen=2), j.turn(3, j.text("y"), seen=2))

    assert state.turns == 5


def test_damage_lasts_until_the_run_has_gone_on_knowing_it() -> None:
    """A whole turn after the damage heals it, a human's revive too; it stays on record."""
    for heal in (j.turn(1, j.text("x"), seen=2), j.revived("manual")):
        state = state_of(*BEGUN)
        note_damage(state, 100, "zero bytes")
        assert state.gap_since_turn

        j.fold_all([j.revived("crash"), heal], state)
        assert (state.gap_since_turn, [(d.offset, d.what) for d in state.damage]) == (False, [(100, "zero bytes")])


def test_a_batch_whose_turn_is_lost_has_its_calls() -> None:
    """Effects hang on the batch: its calls are settled even where the turn itself is gone."""
    state = state_of(*BEGUN, j.batch(4, "t4c1"), j.handed_over("t4c1"))

    assert ([(c.call_id, c.started) for c in state.open_calls], state.turns) == ([("t4c1", True)], 4)


def test_a_state_survives_its_checkpoint() -> None:
    """What a Checkpoint carries is the state, every part of it."""
    records: list[Any] = [*ASKED, j.handed_over("t1c1"), j.said("é 🍕"), j.revived(), j.draining("t1c1")]
    state = state_of(*records)
    note_damage(state, 5, "x")

    assert j.copied(state) == state
