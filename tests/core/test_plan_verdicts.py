"""The recovery plan: who was interrupted, what it costs, what the run is told, and what becomes of it."""

from hashlib import sha256
from typing import Any

import pytest

from onward.core.plan import Evidence, Found, Policy, RecoveryPlan, cause_of, plan
from onward.core.state import RunState
from tests.core import journals as j
from tests.core.journals import BOOT, Json, text, use
from tests.core.test_plan import HANDED_OVER, HERE, NOT_HANDED_OVER, REBOOTED, asked, folded, planned

LATER = "2099-01-01T00:00:00.000000Z"
ANSWERED = [*HANDED_OVER, j.done("t1c1")]
ALIVE, LOST = Evidence(found=Found.ALIVE), Evidence(found=Found.LOST)


def notice(number: int = 1) -> Json:
    return j.said("[background event] x", message_id=f"revival-{number}", source="revival")


@pytest.mark.parametrize(
    ("records", "policy", "cause", "charged"),
    [
        ([j.inferring()], HERE, "crash", True),
        ([j.inferring()], REBOOTED, "reboot", True),
        (ANSWERED, HERE, "crash", True),
        (HANDED_OVER, REBOOTED, "reboot", True),
        ([*HANDED_OVER, j.draining("t1c1")], HERE, "restart", False),
        ([*HANDED_OVER, j.draining("t1c1")], REBOOTED, "restart", False),
        ([j.draining(), j.claimed(epoch=2)], HERE, "crash", True),
    ],
)
def test_an_interruption_has_a_cause_and_crash_and_reboot_are_charged(
    records: list[Json], policy: Policy, cause: str, charged: bool
) -> None:
    """The newest claim's boot and its drain tell a crash from a reboot and from a clean restart."""
    decided = planned(*records, policy=policy)

    assert decided.revived is not None
    assert (decided.verdict, decided.revived.cause, decided.revived.charged) == ("enter", cause, charged)
    assert decided.revived.attempt == 1
    assert decided.notice is not None


STAGED: Json = {"stages": [{"name": "plan", "checkpoint": ["approve"], "next": ["build"]}, {"name": "build"}]}
BINDING: Json = {"call_id": "t1c1", "arguments": sha256(b"{}").hexdigest()}
AT_THE_CHECKPOINT = [
    j.entered("plan"), j.turn(1, text("a plan"), seen=3), j.opened("q1", "checkpoint", {"stage": "plan", "visit": 1})
]  # fmt: skip
HELD_CALL = [*asked("t1c1"), j.opened("q1", "permission", BINDING)]
AT_REST: list[tuple[str, list[Json]]] = [
    ("at a checkpoint", AT_THE_CHECKPOINT),
    ("at a checkpoint that a message overtook", [*AT_THE_CHECKPOINT, j.said("a"), j.closed("q1", "overtaken")]),
    ("at a checkpoint that expired", [*AT_THE_CHECKPOINT, j.closed("q1")]),
    ("at a checkpoint that was answered", [*AT_THE_CHECKPOINT, j.answered("q1", {"decision": "approve"})]),
    ("at a call that a human was asked about", HELD_CALL),
    ("at a call that a human answered", [*HELD_CALL, j.answered("q1", {"decision": "approve"})]),
    ("at the question whether to go on", [j.inferring(), j.revived(), j.opened("q1", "restart", {"revival": 1})]),
]


@pytest.mark.parametrize("policy", [HERE, REBOOTED, Policy(boot_id=BOOT, max_revivals=0)])
@pytest.mark.parametrize("on_restart", ["resume", "ask", "stop"])
@pytest.mark.parametrize("said", [[], [j.said("hello")]], ids=["left alone", "talked to"])
@pytest.mark.parametrize("records", [row[1] for row in AT_REST], ids=[row[0] for row in AT_REST])
def test_a_run_that_came_to_rest_at_a_human_is_not_interrupted_whatever_is_said_to_it(
    records: list[Json], said: list[Json], on_restart: str, policy: Policy
) -> None:
    """Entering it because of a message, after a crash or after a reboot, costs it nothing and tells it nothing."""
    started = j.started(agent=STAGED if records[0]["type"] == "StageEntered" else {"tools": ["shell"]})
    state = j.fold_all([started | {"on_restart": on_restart}, j.claimed(), *records, *said])
    decided = plan(state, {}, policy)

    assert (decided.verdict, decided.revived, decided.notice, decided.settlements) == ("enter", None, None, ())


def test_a_run_that_went_on_after_a_checkpoint_is_interrupted_like_any_other() -> None:
    records = [*AT_THE_CHECKPOINT, j.said("hello"), j.closed("q1", "overtaken"), j.inferring()]
    decided = plan(j.fold_all([j.started(agent=STAGED), j.claimed(), *records]), {}, HERE)

    assert decided.revived is not None
    assert decided.revived.charged


NOT_INTERRUPTED: list[tuple[str, list[Json], dict[str, Evidence]]] = [
    ("drained with nothing in flight", [*ANSWERED, j.draining()], {}),
    ("drained while its call lives on", [*HANDED_OVER, j.draining("t1c1")], {"t1c1": ALIVE}),
    ("waiting for a retry", [j.inferring(), j.failed(LATER)], {}),
    ("only waited for an adopted call", HANDED_OVER, {"t1c1": ALIVE}),
    ("resumed after a pause, not yet claimed", [j.control("RunPaused"), j.control("RunResumed")], {}),
    ("revived by a human after it failed", [j.ended("failed"), j.revived("manual")], {}),
    ("revived from quarantine, at rest before", [j.draining(), j.control("RunQuarantined"), j.revived("manual")], {}),
]


@pytest.mark.parametrize(
    ("records", "evidence"), [row[1:] for row in NOT_INTERRUPTED], ids=[row[0] for row in NOT_INTERRUPTED]
)
def test_a_run_that_was_not_at_work_was_not_interrupted(records: list[Json], evidence: dict[str, Evidence]) -> None:
    """It is entered without RunRevived and without a notice."""
    decided = plan(folded(*records), evidence, HERE)

    assert (decided.verdict, decided.revived, decided.notice) == ("enter", None, None)


@pytest.mark.parametrize("aside", [j.control("RunQuarantined"), j.parked("damaged")])
def test_a_run_that_was_put_aside_at_an_interruption_is_told_when_a_human_revives_it(aside: Json) -> None:
    """Once: the revive is the revival, nothing is charged, and no other RunRevived is written."""
    records = [*HANDED_OVER, j.done("t1c1"), j.inferring(), j.claimed("boot-2", 2), aside, j.revived("manual")]
    decided = planned(*records, policy=REBOOTED)

    assert (decided.verdict, decided.revived, decided.notice is None) == ("enter", None, False)
    again = planned(*records, j.claimed("boot-2", 3), notice(), j.draining(), aside, j.revived("manual", 2))
    assert again.notice is None


@pytest.mark.parametrize("on_restart", ["resume", "ask", "stop"])
def test_a_revive_by_hand_serves_the_next_entry_only(on_restart: str) -> None:
    """Of an interrupted run: its calls are settled and it is told, uncharged; whoever dies in it then is charged."""
    state = j.fold_all([j.started(on_restart=on_restart), j.claimed(), *HANDED_OVER, j.revived("manual")])
    capped = Policy(boot_id=BOOT, max_revivals=0, max_stalled_revivals=0)
    decided = plan(state, {"t1c1": LOST}, capped)
    assert (decided.verdict, decided.revived, decided.notice is None) == ("enter", None, False)
    assert len(decided.settlements) == 1
    for begun in (j.claimed(epoch=2), j.inferring(), j.handed_over("t1c1")):
        behind = j.fold_all([begun], j.copied(state))
        revived = plan(behind, {"t1c1": LOST}, HERE).revived
        assert revived is not None
        assert (revived.charged, revived.attempt) == (True, 2)


def test_a_run_that_holds_only_its_start_is_entered() -> None:
    """It was acknowledged and never ran: nothing was interrupted."""
    decided = plan(j.fold_all([j.started()]), {}, HERE)

    assert (decided.verdict, decided.revived, decided.notice) == ("enter", None, None)


def test_a_lost_call_beside_an_adopted_one_is_an_interruption() -> None:
    """Only a run that *only* waited for adopted calls was not interrupted."""
    batch = [j.turn(1, use("a"), use("b"), seen=2), j.batch(1, "t1c1", "t1c2")]
    decided = planned(*batch, j.handed_over("t1c1"), j.handed_over("t1c2"), t1c1=ALIVE, t1c2=LOST)

    assert decided.revived is not None
    assert (decided.adopt, len(decided.settlements)) == (("t1c1",), 1)


def test_the_notice_says_what_happened() -> None:
    """A background event, automated, not the user; the work above is the run's own and unfinished."""
    said = planned(j.inferring()).notice or ""

    assert said.startswith("[background event]")
    parts = ("utomated", "not the user speaking", "previous session ended", "resumed", "its own conversation")
    places = [said.index(part) for part in (*parts, "still unfinished")]
    assert places == sorted(places)


def test_after_a_reboot_the_notice_adds_what_may_be_missing() -> None:
    """What commands wrote in the last minute may be gone; after a crash it is not."""
    assert "last minute" in (planned(j.inferring(), policy=REBOOTED).notice or "")
    assert "last minute" not in (planned(j.inferring()).notice or "")


@pytest.mark.parametrize("written", [[], [j.revived("reboot")]])
def test_a_recovery_that_dies_after_a_reboot_does_not_forget_it(written: list[Json]) -> None:
    """The claim names the new boot already, and the run must still be told of the reboot."""
    decided = planned(j.inferring(), j.claimed("boot-2", epoch=2), *written, policy=REBOOTED)

    assert "last minute" in (decided.notice or "")


def test_one_notice_until_the_run_has_thought() -> None:
    """Each try is counted, but told once; after a turn the next interruption is told again."""
    told = [j.inferring(), j.revived(), notice()]
    again = planned(*told, j.claimed(epoch=2), j.inferring())
    steered = planned(*told, j.said("hello"), j.inferring())
    thought = planned(*told, j.turn(1, use("a"), seen=5), j.batch(1, "t1c1"), j.handed_over("t1c1"))

    assert [p.revived and p.revived.attempt for p in (again, steered, thought)] == [2, 2, 2]
    assert [p.notice is None for p in (again, steered, thought)] == [True, True, False]


def test_a_run_that_died_before_its_notice_is_told() -> None:
    """RunRevived alone tells nobody."""
    assert planned(j.inferring(), j.revived()).notice is not None


FINISHED: list[list[Json]] = [
    [j.turn(1, text("42"), seen=2)],
    [j.turn(1, text("42"), seen=2), j.draining()],
    [j.turn(1, seen=2)],
    [*HANDED_OVER, j.done("t1c1", "42", ends_run="completed")],
]


@pytest.mark.parametrize("records", FINISHED)
def test_a_run_of_which_only_its_end_is_missing_is_ended(records: list[Json]) -> None:
    """RunEnded is written; it is neither revived nor told, and a cap does not matter."""
    decided = planned(*records, policy=Policy(boot_id="boot-2", max_revivals=0))

    assert (decided.verdict, decided.revived, decided.notice, decided.settlements) == ("end", None, None, ())
    assert decided.ended is not None
    assert decided.ended.status == "completed"


@pytest.mark.parametrize(
    "records",
    [
        [j.said("also"), j.turn(1, text("42"), seen=2)],
        [j.turn(1, text("42"), seen=2), j.said("also")],
        [j.turn(1, text("4"), seen=2, stop_reason="max_tokens")],
        [*NOT_HANDED_OVER, j.done("t1c1", "42", "error", ends_run="completed")],
        ANSWERED,
    ],
)
def test_a_run_that_owes_something_is_not_ended(records: list[Json]) -> None:
    """An unseen message, a cut answer, results that the model has not seen."""
    assert planned(*records).verdict == "enter"


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ([j.control("RunPaused")], "paused"),
        ([j.parked()], "parked"),
        ([j.control("RunQuarantined")], "quarantined"),
        ([j.ended()], "finished"),
        ([j.ended("failed")], "ended"),
        ([j.ended("cancelled")], "ended"),
    ],
)
def test_a_run_that_is_not_active_is_left_alone(records: list[Json], reason: str) -> None:
    """Nothing is settled, told or written, though a call is open."""
    decided = planned(*HANDED_OVER, *records, t1c1=LOST)

    assert (decided.verdict, decided.reason) == ("leave", reason)
    assert (decided.revived, decided.settlements, decided.notice, decided.ended) == (None, (), None, None)


def revivals(*causes: str) -> list[Json]:
    return [j.revived(cause, number) for number, cause in enumerate(causes, 1)]


@pytest.mark.parametrize(
    ("causes", "cap", "refused"),
    [
        ([], None, False),
        ([], 0, True),
        ([], 1, False),
        (["crash"], 1, True),
        (["crash"], 2, False),
        (["restart", "restart"], 1, False),
        (["crash", "reboot"], 2, True),
        (["crash", "reboot", "manual"], 2, False),
    ],
)
def test_charged_revivals_are_capped(causes: list[str], cap: int | None, refused: bool) -> None:
    """At the cap the run is quarantined, and its calls are not even settled."""
    progress = j.done("t9c9")
    policy = Policy(boot_id=BOOT, max_revivals=cap)
    decided = planned(*HANDED_OVER, *revivals(*causes), progress, policy=policy)

    assert decided.verdict == ("quarantine" if refused else "enter")
    if refused:
        assert decided.reason.startswith("revival-cap")
        assert (decided.revived, decided.settlements, decided.notice) == (None, (), None)


def test_a_clean_restart_passes_the_cap() -> None:
    """It is not charged, so that deploys use nothing up."""
    assert planned(*HANDED_OVER, j.draining("t1c1"), policy=Policy(boot_id=BOOT, max_revivals=0)).verdict == "enter"


@pytest.mark.parametrize(
    ("causes", "progress", "quarantined"),
    [
        (["crash"] * 2, [], False),
        (["crash"] * 3, [], True),
        (["crash"] * 3, [j.turn(1, use("a"), seen=2)], False),
        (["crash"] * 3, [j.inferring(), j.failed(), notice(3)], True),
        (["restart"] * 5, [], False),
        (["crash", "crash", "manual", "crash"], [], False),
    ],
)
def test_a_run_that_is_revived_again_and_again_without_progress_is_quarantined(
    causes: list[str], progress: list[Json], quarantined: bool
) -> None:
    """Three charged revivals in a row without a turn or a result."""
    decided = planned(*revivals(*causes), *progress)

    assert decided.verdict == ("quarantine" if quarantined else "enter")


def test_on_restart_stop_settles_tells_and_pauses() -> None:
    """The history is whole when the human comes back, but nothing is started."""
    state = j.fold_all([j.started(on_restart="stop"), j.claimed(), *HANDED_OVER])
    decided = plan(state, {"t1c1": LOST}, HERE)

    assert decided.verdict == "stop"
    assert decided.revived is not None
    assert (len(decided.settlements), decided.notice is None) == (1, False)


def test_on_restart_stop_does_not_stop_what_was_not_interrupted() -> None:
    """A deploy between two steps is no interruption."""
    state = j.fold_all([j.started(on_restart="stop"), j.claimed(), *ANSWERED, j.draining()])

    assert plan(state, {}, HERE).verdict == "enter"


def test_a_plan_changes_no_state() -> None:
    """It decides only."""
    state: RunState = folded(j.turn(1, use("a"), seen=2))
    before: dict[str, Any] = j.snapshot(state)
    decided: RecoveryPlan = plan(state, {}, REBOOTED)

    assert decided.settlements
    assert j.snapshot(state) == before
    assert cause_of(state, "boot-2") == "reboot"
