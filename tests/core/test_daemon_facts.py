"""What the next daemon makes of the facts: whom it leaves alone, when it reads run by run, when it enters nothing."""

from typing import Any

import pytest

from onward.core.daemon_facts import (
    CRASH_LOOP,
    KEPT_LIVES,
    StartDecision,
    decide_start,
    fold_facts,
    is_copy,
    is_suspect,
    kept_facts,
)
from onward.core.outbox import Outbox, kept_notifications
from onward.core.records import Json
from onward.core.state import RunState
from onward.core.status import Status

HERE = ("machine", 7)
NOW = "2026-01-01T00:01:00.000000Z"
LONG_AGO = "2025-01-01T00:00:00.000000Z"


def fact(kind: str, ts: str = "2026-01-01T00:00:00.000000Z", **members: Any) -> Json:
    return {"type": kind, "ts": ts, **members}


def start(place: tuple[str, int] = HERE, boot_id: str = "b", **members: Any) -> Json:
    return fact("DaemonStarted", boot_id=boot_id, machine_id=place[0], runs_inode=place[1], **members)


def entering(run_id: str, doing: str = "entered") -> Json:
    return fact("RunEntering", run_id=run_id, doing=doing)


STOP, BEGUN, ENDED = fact("DaemonStopped"), fact("FoldingBegun"), fact("FoldingEnded")
ENTERED = fact("RunEntered", run_id="x")
REVIVED = fact("Released", what="quarantine", run_id="x")
SUSPENDED = fact("RunSuspended", run_id="x", reason="it kills")


def decided(*facts: Json, **members: Any) -> StartDecision:
    return decide_start(fold_facts(facts), **{"here": HERE, "boot_id": "b", "now": NOW, **members})


@pytest.mark.parametrize(
    ("facts", "blamed"),
    [
        ([], []),
        ([start()], []),
        ([start(), entering("x")], ["x"]),
        ([start(), entering("x"), ENTERED], []),
        ([start(), entering("x"), STOP], []),
        ([start(), entering("x"), start()], []),
        ([start(), entering("x"), SUSPENDED], []),
        ([start(), entering("x"), REVIVED], []),
        ([start(boot_id="before"), entering("x")], []),
        ([start(), entering("x", "read"), entering("y", "read")], ["y"]),
        ([start(), entering("x", "read"), ENDED], []),
        ([start(), entering("x", "read"), ENDED, entering("y")], ["y"]),
        ([start(), entering("x"), entering("y")], ["x", "y"]),
        ([entering("x")], []),
        ([start(), fact("RunEntering"), fact("RunEntering", run_id=5)], []),
    ],
)
def test_who_is_named_when_the_daemon_dies_is_to_blame(facts: list[Json], blamed: list[str]) -> None:
    assert list(decided(*facts).blamed) == blamed


@pytest.mark.parametrize(
    ("facts", "one_by_one"),
    [
        ([start(), BEGUN], False),
        ([start(), BEGUN, start(), BEGUN], True),
        ([start(), BEGUN, start(), BEGUN, start(), BEGUN, ENDED], False),
        ([start(), BEGUN, ENDED, start(), BEGUN], False),
        ([start(), BEGUN, start(), BEGUN, STOP], False),
        ([start(boot_id="before"), BEGUN, start(), BEGUN], False),
        ([start(), BEGUN, start(), BEGUN, SUSPENDED], True),
    ],
)
def test_two_deaths_while_journals_were_read_make_the_next_read_run_by_run(facts: list[Json], one_by_one: bool) -> None:
    assert decided(*facts).one_by_one is one_by_one


def test_a_suspended_run_stays_so_until_it_is_revived() -> None:
    assert fold_facts([SUSPENDED, start(), STOP, start()]).suspended == {"x": "it kills"}
    assert fold_facts([SUSPENDED, start(), REVIVED]).suspended == {}
    assert fold_facts([SUSPENDED, fact("Released", what="hold", run_id="x"), fact("Released")]).suspended


ANEW = fact("HeldAnew")
LET_GO = fact("Released", what="hold", run_id="x", machine_id=HERE[0], runs_inode=HERE[1])


@pytest.mark.parametrize(
    ("facts", "passes"),
    [
        ([start()], False),
        ([start(), LET_GO], True),
        ([start(), LET_GO, start(), STOP, start()], True),
        ([start(), LET_GO, ANEW], False),
        ([start(), LET_GO, ANEW, LET_GO], True),
        ([start(), ANEW, LET_GO, start()], True),
        ([start(), LET_GO, fact("Released", what="hold", machine_id=HERE[0], runs_inode=HERE[1])], False),
        ([start(), {**LET_GO, "runs_inode": 9}], False),
        ([start(), LET_GO, REVIVED], True),
        ([start(), REVIVED], False),
    ],
)
def test_a_run_that_was_released_by_name_passes_until_runs_are_held_anew(facts: list[Json], passes: bool) -> None:
    """Over restarts, in this place alone; that it may go on here, wherever it was before, is true for ever."""
    for folded in (fold_facts(facts), fold_facts(kept_facts(facts, NOW))):
        assert folded.passes_hold("x", HERE) is passes
        assert folded.lets_go("x", HERE) is (LET_GO in facts)


@pytest.mark.parametrize(
    ("facts", "watched"),
    [
        ([SUSPENDED, start()], set()),
        ([SUSPENDED, start(), REVIVED], {"x"}),
        ([SUSPENDED, REVIVED, start(), STOP, start()], {"x"}),
        ([start(), entering("x"), REVIVED, start()], {"x"}),
        ([SUSPENDED, start(), entering("x", "read"), REVIVED, ENTERED], {"x"}),
        ([SUSPENDED, REVIVED, start(), entering("x")], {"x"}),
        ([SUSPENDED, REVIVED, start(), entering("x"), ENTERED], set()),
        ([SUSPENDED, REVIVED, start(), entering("x"), SUSPENDED, start()], set()),
    ],
)
def test_a_run_that_was_revived_is_named_until_it_was_entered_and_done_with(
    facts: list[Json], watched: set[str]
) -> None:
    """Whichever daemon enters it, and whether one was there when it was revived; what is kept says so too."""
    assert fold_facts(facts).watched == watched
    assert fold_facts(kept_facts(facts, NOW)).watched == watched


@pytest.mark.parametrize(
    ("facts", "held"),
    [
        ([start()] * CRASH_LOOP, "crash-loop"),
        ([start()] * (CRASH_LOOP - 1), None),
        ([start(), STOP] * CRASH_LOOP, None),
        ([start(ts=LONG_AGO)] * CRASH_LOOP, None),
        ([start(boot_id="before")] * CRASH_LOOP, None),
        ([start()] * CRASH_LOOP + [fact("Released", what="hold")], None),
        ([start()] * CRASH_LOOP + [REVIVED], "crash-loop"),
        ([start(("another", 7))], "copy"),
        ([start(("machine", 8))], "copy"),
        ([start(("", 7))], None),
        ([start(("another", 7)), start(), STOP], "copy"),
        ([start(("another", 7)), fact("Released", machine_id="machine", runs_inode=7)], None),
        ([start(), fact("Released", machine_id="another", runs_inode=7)], "copy"),
        ([fact("DaemonStarted", boot_id="b"), fact("DaemonStarted", runs_inode="x", machine_id=3)], None),
    ],
)
def test_what_holds_the_runs(facts: list[Json], held: str | None) -> None:
    assert decided(*facts).held == held


def claimed(place: tuple[str, int] | None) -> RunState:
    claim = None if place is None else {"machine_id": place[0], "runs_inode": place[1]}
    return RunState(run_id="x", claim=claim)


def test_a_run_that_was_claimed_elsewhere_is_a_copy_until_it_is_released_here() -> None:
    released = fact("Released", what="hold", run_id="x", machine_id=HERE[0], runs_inode=HERE[1])
    whole = fact("Released", machine_id="machine", runs_inode=7, from_machine_id="another", from_runs_inode=1)
    assert not is_copy(claimed(None), HERE, fold_facts([]))
    assert not is_copy(claimed(HERE), HERE, fold_facts([]))
    assert is_copy(claimed(("another", 1)), HERE, fold_facts([]))
    assert is_copy(claimed(("another", 1)), HERE, fold_facts([{**released, "runs_inode": 9}]))
    assert not is_copy(claimed(("another", 1)), HERE, fold_facts([released]))
    assert not is_copy(claimed(("another", 1)), HERE, fold_facts([whole]))
    assert is_copy(claimed(("third", 1)), HERE, fold_facts([whole]))


@pytest.mark.parametrize(
    ("stalled", "longest", "suspect"), [(0, 3, False), (1, 3, False), (2, 3, True), (1, 2, True), (0, 1, False)]
)
def test_one_revival_before_the_last_a_run_is_a_suspect(stalled: int, longest: int, suspect: bool) -> None:
    state = RunState(stalled_revivals=stalled, limits={"max_stalled_revivals": longest})
    assert is_suspect(state) is suspect
    state.status = Status.PAUSED
    assert not is_suspect(state)


HISTORY = [
    start(("first", 1), ts=LONG_AGO),
    fact("Released", LONG_AGO, machine_id="machine", runs_inode=7, from_machine_id="first", from_runs_inode=1),
    *[part for _ in range(200) for part in (start(), entering("y"), fact("RunEntered", run_id="y"), STOP)],
    *[fact("RunSuspended", run_id=f"s{n}", reason="it kills") for n in range(3)],
    fact("Released", what="quarantine", run_id="s1"),
    fact("Released", what="hold", run_id="z", machine_id="machine", runs_inode=7),
    *[start(), BEGUN, start(), BEGUN, entering("x", "read"), fact("SpendCounted", LONG_AGO)],
    fact("SpendCounted", usd=1.0),
]


def test_what_is_kept_of_many_facts_means_the_same_and_is_little() -> None:
    kept = kept_facts(HISTORY, NOW)
    before, after = fold_facts(HISTORY), fold_facts(kept)
    assert after == before
    assert decided(*kept) == decided(*HISTORY)
    assert len(kept) <= 2 * KEPT_LIVES + 12
    assert [part.get("usd") for part in kept if part["type"] == "SpendCounted"] == [1.0]
    assert kept_facts(kept, NOW) == kept


def test_of_notifications_that_were_delivered_only_the_id_is_kept() -> None:
    def queued(name: str) -> Json:
        notification = {"delivery_id": name, "prompt": "long"}
        return fact("NotificationQueued", delivery_id=name, notification=notification, targets=["a", "b"])

    sent = [fact("NotificationSent", delivery_id=name, target=to) for name, to in (("x", "a"), ("x", "b"), ("y", "a"))]
    kept = kept_notifications([queued("x"), queued("y"), *sent, STOP])
    before, after = Outbox(), Outbox()
    for part in [queued("x"), queued("y"), *sent]:
        before.apply(part)
    for part in kept:
        after.apply(part)
    assert (
        (list(after.known), list(after.owed))
        == (list(before.known), list(before.owed))
        == (
            ["x", "y"],
            [("y", "b")],
        )
    )
    assert [part["type"] for part in kept] == [*["NotificationQueued"] * 2, "NotificationSent", "DaemonStopped"]
    assert kept[0]["notification"] == {}
