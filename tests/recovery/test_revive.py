"""A human's revive without a daemon: one durable record, or a refusal that writes nothing; it agrees with `inspect`."""

import errno
import os
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.errors import BadRequest
from onward.processes.identity import boot_id, start_ticks
from onward.recovery import inspect, inspect_all, revive
from onward.store import lock
from onward.store.lock import this_process
from tests.core import journals as j
from tests.core.acting import Daemon, histories
from tests.core.journals import Json, use
from tests.core.test_recovery_properties import some
from tests.recovery.runs import entered, put, records, tree
from tests.store.worlds import fault, records_in

AT_WORK = [j.started(), j.claimed(), j.inferring()]
CAPPED = [j.started(limits={"max_revivals": 0}), *AT_WORK[1:]]
WAITING = [*AT_WORK, j.revived(), j.opened("q1", "restart", {"revival": 1})]
GAP = j.Journal().add(*AT_WORK, j.turn(1, use("a"), seen=2), j.batch(1, "t1c1")).skip().add(j.handed_over("t1c1"))

PASSED: list[tuple[str, Any]] = [
    ("interrupted", AT_WORK),
    ("continues", [*AT_WORK, j.failed(), j.draining()]),
    ("paused", [*AT_WORK, j.control("RunPaused")]),
    ("parked", [*AT_WORK, j.parked("provider")]),
    ("quarantined", [*AT_WORK, j.control("RunQuarantined")]),
    ("ended", [*AT_WORK, j.ended("failed")]),
    ("damaged", GAP),
    ("interrupted", CAPPED),
]
REFUSED: list[tuple[str, Any]] = [
    ("finished", [*AT_WORK, j.turn(1, j.text("42"), seen=2)]),
    ("finished", [*AT_WORK, j.turn(1, j.text("42"), seen=2), j.ended()]),
    ("ended", [*AT_WORK, j.ended("cancelled")]),
    ("ended", [*AT_WORK, {"type": "CancelRequested", "by": "me"}]),
    ("waiting", WAITING),
    ("damaged", b"no journal"),
    ("newer", [*AT_WORK, {"type": "Sealed", "must": True}]),
]


@pytest.mark.parametrize(("reason", "content"), PASSED, ids=[f"{n}-{r[0]}" for n, r in enumerate(PASSED)])
def test_a_human_revives_what_recovery_left(reason: str, content: Any, tmp_path: Path) -> None:
    """One RunRevived(manual) by this user, all counts anew; asked again nothing more is written."""
    run = put(tmp_path, content)
    seq = records(run)[-1]["seq"]

    done = revive(run, by="anna")
    assert (done.ok, done.reason, done.run_id) == (True, reason, "worker-1")
    (record,) = records(run, behind=seq)
    assert (record["type"], record["cause"], record["charged"], record["by"]) == ("RunRevived", "manual", False, "anna")
    after = inspect(run)
    assert (after.status, after.revivable) == ("active", True)
    assert revive(run, by="anna").ok
    assert len(records(run, behind=seq)) == 1


@pytest.mark.parametrize(("reason", "content"), REFUSED, ids=[f"{n}-{r[0]}" for n, r in enumerate(REFUSED)])
def test_a_refusal_writes_nothing(reason: str, content: Any, tmp_path: Path) -> None:
    run = put(tmp_path, content)
    (run / "journal.jsonl").write_bytes((run / "journal.jsonl").read_bytes() + b'{"crc":"0000')
    before = tree(tmp_path)

    done = revive(run)
    assert (done.ok, done.reason) == (False, reason)
    assert done.detail
    assert tree(tmp_path) == before
    assert not inspect(run).by_hand


def test_the_askers_cap_binds_a_human_too(tmp_path: Path) -> None:
    """Zero refuses whatever may pass otherwise, and what a human revived counts from nothing."""
    for number, (_, content) in enumerate(PASSED):
        run = put(tmp_path / str(number), content)
        before = tree(tmp_path)
        refused = revive(run, max_revivals=0)
        assert (refused.ok, refused.reason) == (False, "revival-cap")
        assert tree(tmp_path) == before
        assert not inspect(run, 0).by_hand
    run = put(tmp_path / "n", [j.started(), j.claimed(), j.revived(), j.revived(attempt=2), j.inferring()])
    assert not revive(run, max_revivals=2).ok
    assert revive(run, max_revivals=3).ok
    assert revive(run, max_revivals=1).ok


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"path": "/x", "run": "worker-1"},
        {"run": "worker-1"},
        {"path": 5},
        {"path": "/x", "max_revivals": -1},
        {"run": "worker-1", "runs_dir": "/x", "max_revivals": -1},
    ],
)
def test_only_a_callers_mistake_is_raised(asked: dict[str, Any]) -> None:
    """Both or neither target, a negative cap; a path that leads nowhere is an answer."""
    with pytest.raises(BadRequest):
        revive(**asked)
    assert revive("/nonexistent/worker-1").reason == "unreadable"
    assert revive(run="\0", runs_dir="/nonexistent").reason == "unreadable"


def test_a_run_is_named_by_its_id_too(tmp_path: Path) -> None:
    put(tmp_path, AT_WORK)
    assert revive(run="worker-1", runs_dir=tmp_path).ok


def test_while_a_daemon_holds_the_runs_nobody_else_writes(tmp_path: Path) -> None:
    """Refused at once, by value; the message says who holds them."""
    run = put(tmp_path, [*AT_WORK, j.control("RunQuarantined")])
    held = lock.take(str(tmp_path / ".lock"), this_process("boot-1", start_ticks(os.getpid()) or 0))
    try:
        before = tree(run)
        done = revive(run)
    finally:
        held.release()
    assert (done.ok, done.reason) == (False, "live")
    assert str(os.getpid()) in done.detail
    assert tree(run) == before
    assert revive(run).ok


@pytest.mark.parametrize(
    "text", ["journal.write.before=enospc", "journal.write.before=short", "journal.flush.before=eio*"]
)
def test_a_disk_that_does_not_take_it_is_answered(text: str, tmp_path: Path) -> None:
    """By value; the record does not stand half there, and the next try succeeds."""
    run = put(tmp_path, AT_WORK)
    with fault(text):
        done = revive(run)
    assert (done.ok, done.reason) == (False, "unwritable")
    assert inspect(run).torn is None
    assert revive(run).ok
    assert len([record for record in records(run) if record["type"] == "RunRevived"]) == 1


def test_a_file_system_that_cannot_be_written_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = put(tmp_path, AT_WORK)

    def refuse(*_: object) -> int:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(lock, "take", refuse)
    done = revive(run)
    assert (done.ok, done.reason) == (False, "unwritable")
    assert "Read-only" in done.detail


def test_a_revive_by_hand_serves_the_next_entry(tmp_path: Path) -> None:
    """Of a run in mid-call: settled once, told once, not charged; and no second RunRevived is written."""
    run = put(tmp_path, [*AT_WORK, j.turn(1, use("a"), seen=2), j.batch(1, "t1c1"), j.handed_over("t1c1")])
    seq = records(run)[-1]["seq"]
    assert revive(run).ok
    anyio.run(entered, run)
    assert [record["type"] for record in records(run, seq)] == [
        "RunRevived", "RunClaimed", "ToolCallDone", "MessageAdded",
    ]  # fmt: skip
    anyio.run(entered, run)
    assert [record["type"] for record in records(run, seq + 4)] == ["RunClaimed", "RunRevived"]
    assert records(run)[-1]["charged"]


@pytest.mark.parametrize("content", [GAP, [*AT_WORK, j.parked("damaged")]])
def test_evidence_that_the_journal_does_not_know_is_set_aside(content: Any, tmp_path: Path) -> None:
    """After a damaged run was revived it is not parked for the same thing again; nothing is deleted."""
    run = put(tmp_path, content)
    (run / "calls" / "t7c1").mkdir(parents=True)
    assert inspect(run).reason == "damaged"
    assert revive(run).ok
    assert [path.name.partition(".")[0] for path in (run / "calls").iterdir()] == ["t7c1"]
    assert inspect(run).reason in ("interrupted", "continues")
    assert anyio.run(entered, run).verdict == "enter"


def histories_on_disk(top: Path, daemon: Daemon) -> Path:
    return put(top, daemon.data)


@some
@given(histories(), st.sampled_from([None, 0, 1, 3]))
def test_inspect_and_revive_agree_on_every_history(
    tmp_path_factory: pytest.TempPathFactory, daemon: Daemon, cap: int | None
) -> None:
    """The same replay, the same verdict: what inspect says a human may do, revive does, and nothing else."""
    run = histories_on_disk(tmp_path_factory.mktemp("runs"), daemon)
    before: list[Json] = records(run)
    found = inspect(run, cap)
    done = revive(run, max_revivals=cap)

    assert done.ok == found.by_hand
    assert found.by_hand or done.reason in (found.reason, "revival-cap")
    assert len(records(run)) - len(before) in ((0, 1) if done.ok else (0,))
    after = inspect(run, cap)
    assert not done.ok or (after.status, after.reason in ("interrupted", "continues", "waiting")) == ("active", True)


def facts_of(top: Path, *facts: Json) -> None:
    top.chmod(0o700)
    (top / "daemon.jsonl").write_bytes(j.Journal().add(*facts).bytes)


BEGAN: Json = {"type": "DaemonStarted", "pid": 1, "boot_id": boot_id(), "machine_id": "m", "runs_inode": 7}
NAMED: Json = {"type": "RunEntering", "run_id": "worker-1", "doing": "entered"}
SUSPENDED: Json = {"type": "RunSuspended", "run_id": "worker-1", "reason": "the daemon died with it in hand"}


@pytest.mark.parametrize("facts", [[BEGAN, NAMED], [SUSPENDED, BEGAN], [SUSPENDED, BEGAN, NAMED]])
def test_a_run_with_which_the_daemon_died_is_not_read_before_a_human_revives_it(
    facts: list[Json], tmp_path: Path
) -> None:
    """Named when it died, or set aside for that: inspect does not open the journal, a revive ends it durably first."""
    run = put(tmp_path, AT_WORK)
    facts_of(tmp_path, *facts)
    journal = (run / "journal.jsonl").read_bytes()
    (run / "journal.jsonl").write_bytes(b"not to be read")
    before = tree(tmp_path)
    for found in (inspect(run), *inspect_all(tmp_path)):
        assert (found.reason, found.revivable, found.by_hand, found.status) == ("quarantined", False, True, "")
    assert not revive(run, max_revivals=0).ok
    assert tree(tmp_path) == before

    (run / "journal.jsonl").write_bytes(journal)
    done = revive(run, by="anna")
    assert (done.ok, done.reason) == (True, "quarantined")
    assert "died" in done.detail
    released = records_in(tmp_path / "daemon.jsonl")[-1]
    assert (released["type"], released["what"], released["by"]) == ("Released", "quarantine", "anna")
    assert inspect(run).reason == "interrupted"


ASIDE_REFUSED = [("damaged", b"no journal"), ("newer", [*AT_WORK, {"type": "Sealed", "must": True}])]
ASIDE_AND_WELL = [
    WAITING,
    [*AT_WORK, j.turn(1, j.text("42"), seen=2), j.ended()],
    [*AT_WORK, {"type": "CancelRequested", "by": "me"}],
]


@pytest.mark.parametrize(("reason", "content"), ASIDE_REFUSED, ids=[reason for reason, _ in ASIDE_REFUSED])
def test_a_run_that_was_set_aside_stays_so_where_its_revive_is_refused(
    reason: str, content: Any, tmp_path: Path
) -> None:
    run = put(tmp_path, content)
    facts_of(tmp_path, SUSPENDED)
    before, facts = tree(run), (tmp_path / "daemon.jsonl").read_bytes()
    done = revive(run)
    assert (done.ok, done.reason) == (False, reason)
    assert (tree(run), (tmp_path / "daemon.jsonl").read_bytes()) == (before, facts)
    assert inspect(run).reason == "quarantined"


@pytest.mark.parametrize("content", ASIDE_AND_WELL, ids=["waiting", "finished", "cancelled"])
def test_a_run_that_was_set_aside_may_need_no_more_than_to_be_read_again(content: Any, tmp_path: Path) -> None:
    """As a daemon answers: it is revived out of that, and nothing is written of it."""
    run = put(tmp_path, content)
    facts_of(tmp_path, SUSPENDED)
    before = tree(run)
    done = revive(run)
    assert (done.ok, done.reason, done.detail) == (True, "quarantined", SUSPENDED["reason"])
    assert tree(run) == before
    assert records_in(tmp_path / "daemon.jsonl")[-1]["type"] == "Released"
    assert inspect(run).reason != "quarantined"


def test_other_runs_and_other_boots_are_not_blamed(tmp_path: Path) -> None:
    run = put(tmp_path, AT_WORK)
    for facts in ([BEGAN, NAMED | {"run_id": "worker-2"}], [BEGAN | {"boot_id": "other"}, NAMED]):
        facts_of(tmp_path, *facts)
        assert inspect(run).reason == "interrupted"
    facts_of(tmp_path, BEGAN, NAMED)
    me = this_process("boot-1", start_ticks(os.getpid()) or 0)
    held = lock.take(str(tmp_path / ".lock"), me)
    assert inspect(run).reason == "interrupted"  # its daemon lives
    held.release()
