"""`inspect` gives an answer whatever stands there, and changes nothing."""

import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from onward.core.daemon_facts import ELSEWHERE
from onward.processes.identity import start_ticks
from onward.recovery import Inspection, inspect, inspect_all
from onward.store import lock
from onward.store.directory import machine_id
from onward.store.lock import this_process
from tests.core import journals as j
from tests.core.journals import Json, use
from tests.recovery.runs import put, tree

AT_WORK = [j.started(), j.claimed(), j.inferring()]


def one(path: "Path | str", max_revivals: int | None = None) -> tuple[bool, str]:
    found = inspect(path, max_revivals)
    return found.revivable, found.reason


def missing(path: Path) -> None:
    path.rmdir()


def a_file(path: Path) -> None:
    path.rmdir()
    path.write_bytes(b"x")


def a_fifo(path: Path) -> None:
    path.rmdir()
    os.mkfifo(path)


def a_socket(path: Path) -> None:
    path.rmdir()
    here = os.getcwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(path.name)
    finally:
        os.chdir(here)


def a_link(path: Path) -> None:
    path.rmdir()
    put(path.parent / "elsewhere", AT_WORK)
    path.symlink_to(path.parent / "elsewhere" / path.name)


def a_loop(path: Path) -> None:
    path.rmdir()
    path.symlink_to(path)


def empty(path: Path) -> None:
    pass


def journal_of(data: bytes) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        (path / "journal.jsonl").write_bytes(data)

    return write


def huge(path: Path) -> None:
    os.truncate(os.open(path / "journal.jsonl", os.O_CREAT | os.O_WRONLY), 600_000_000)


def huge_behind_a_run(path: Path) -> None:
    (path / "journal.jsonl").write_bytes(j.Journal().add(*AT_WORK).bytes)
    os.truncate(path / "journal.jsonl", 600_000_000)


def fifo_for_journal(path: Path) -> None:
    os.mkfifo(path / "journal.jsonl")


def directory_for_journal(path: Path) -> None:
    (path / "journal.jsonl").mkdir()


def link_for_journal(path: Path) -> None:
    (path / "journal.jsonl").symlink_to("/etc/passwd")


def odd_calls(path: Path) -> None:
    records = [*AT_WORK, j.turn(1, use("a"), seen=2), j.batch(1, "t1c1"), j.handed_over("t1c1")]
    (path / "journal.jsonl").write_bytes(j.Journal().add(*records).bytes)
    (path / "calls" / "t1c1").mkdir(parents=True)
    os.mkfifo(path / "calls" / "t1c1" / "identity")
    (path / "calls" / "t1c1" / "exit").mkdir()
    (path / "calls" / "t1c1" / "stdout").symlink_to("/dev/zero")
    os.mkfifo(path / "meta.json")


def deep(path: Path) -> None:
    (path / "journal.jsonl").write_bytes(b'{"seq":1,"type":"RunStarted","agent":' + b"[" * 100_000 + b"\n")


SHAPES: list[tuple[Callable[[Path], None], tuple[bool, str]]] = [
    (missing, (False, "unreadable")),
    (a_file, (False, "unreadable")),
    (a_fifo, (False, "unreadable")),
    (a_socket, (False, "unreadable")),
    (a_link, (False, "unreadable")),
    (a_loop, (False, "unreadable")),
    (empty, (False, "damaged")),
    (journal_of(b""), (False, "damaged")),
    (journal_of(bytes(range(256)) * 400), (False, "damaged")),
    (journal_of(b'{"seq":' + b"9" * 5000), (False, "damaged")),
    (deep, (False, "damaged")),
    (fifo_for_journal, (False, "unreadable")),
    (directory_for_journal, (False, "unreadable")),
    (link_for_journal, (False, "unreadable")),
    (odd_calls, (True, "interrupted")),
]
HUGE: list[tuple[Callable[[Path], None], tuple[bool, str]]] = [
    (huge, (False, "damaged")),
    (huge_behind_a_run, (True, "interrupted")),
]


@pytest.mark.parametrize(
    ("shape", "expected"),
    [*SHAPES, *(pytest.param(*row, marks=pytest.mark.slow) for row in HUGE)],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_whatever_stands_there_is_answered_and_left_as_it_is(
    shape: Callable[[Path], None], expected: tuple[bool, str], tmp_path: Path
) -> None:
    path = tmp_path / "worker-1"
    path.mkdir()
    shape(path)
    before = tree(tmp_path)
    began = time.process_time()

    found = inspect(path)

    assert (found.revivable, found.reason) == expected, found
    assert found.run_id == "worker-1"
    assert found.reason == "interrupted" or found.detail
    assert tree(tmp_path) == before
    assert time.process_time() - began < 30


@pytest.mark.parametrize("path", ["", "\0", "a\0b", "/", "/dev/null", "/proc/self/mem", "x" * 5000, "\ud800", "."])
def test_a_path_that_is_none_is_answered(path: str) -> None:
    assert not inspect(path).revivable
    assert not any(found.revivable for found in inspect_all(path))


def test_what_is_no_path_at_all_is_answered() -> None:
    for nothing in (None, 5, object(), b"/nowhere"):
        assert not inspect_all(nothing)[0].revivable  # type: ignore[arg-type]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_may_not_be_read_is_said_to_be_unreadable(tmp_path: Path) -> None:
    run = put(tmp_path, AT_WORK)
    (run / "journal.jsonl").chmod(0)
    assert inspect(run).reason == "unreadable"
    run.chmod(0)
    assert "Permission denied" in inspect(run).detail


def test_a_journal_that_is_being_written_is_read_as_far_as_it_stands(tmp_path: Path) -> None:
    """Half a line, half a character: each look gives an answer about the records that were whole."""
    run = put(tmp_path, AT_WORK)
    journal = j.Journal(seq=3).add(*(j.said("é" * 200, f"m{n}") for n in range(300)))
    stop = threading.Event()

    def write() -> None:
        with (run / "journal.jsonl").open("ab", buffering=0) as file:
            data = journal.bytes
            for at in range(0, len(data), 97):
                file.write(data[at : at + 97])
        stop.set()

    writer = threading.Thread(target=write)
    writer.start()
    answers: list[Inspection] = []
    while not stop.is_set():
        answers.append(inspect(run))
    writer.join()
    answers.append(inspect(run))

    assert {(found.reason, found.damage == []) for found in answers} == {("interrupted", True)}
    assert answers[-1].torn is None


def test_a_run_at_work_is_live_and_only_while_its_process_holds_the_runs(tmp_path: Path) -> None:
    """The lock's holder is the process of the newest claim; another holder, or none, is not."""
    me = this_process("boot-1", start_ticks(os.getpid()) or 0)
    mine = j.claimed() | {"pid": me.pid, "start_ticks": me.start_ticks}
    run = put(tmp_path, [j.started(), mine, j.inferring()])
    paused = put(tmp_path, [j.started(run_id="worker-2"), mine, j.control("RunPaused")], "worker-2")
    held = lock.take(str(tmp_path / ".lock"), me)
    try:
        found = inspect(run)
        assert (found.revivable, found.by_hand, found.reason) == (False, False, "live")
        assert inspect(paused).reason == "paused"
        assert inspect(put(tmp_path, [j.started(run_id="worker-3"), j.claimed()], "worker-3")).reason == "interrupted"
    finally:
        held.release()
    assert one(run) == (True, "interrupted")


def test_the_cap_is_the_askers_or_else_the_runs_own(tmp_path: Path) -> None:
    """Zero refuses every run, a negative one too; the run's own is passed by hand, the asker's never."""
    records = [j.started(limits={"max_revivals": 1}), j.claimed(), j.revived(), j.inferring()]
    run = put(tmp_path, records)

    assert [inspect(run, cap).reason for cap in (2, 1, 0, -1)] == ["interrupted", *["revival-cap"] * 3]
    own = inspect(run)
    assert (own.reason, own.revivable, own.by_hand) == ("revival-cap", False, True)
    assert not inspect(run, 1).by_hand


def test_a_directory_of_runs_is_inspected_run_by_run(tmp_path: Path) -> None:
    put(tmp_path, AT_WORK)
    put(tmp_path, [j.started(run_id="worker-2"), j.ended()], "worker-2")
    (tmp_path / "Notes").mkdir()
    (tmp_path / "a-file").write_text("")
    (tmp_path / ".lock").write_text("")
    run_named = tmp_path / "runs"
    run_named.mkdir()

    found = inspect_all(tmp_path)
    assert [(each.run_id, each.reason) for each in found] == [
        ("runs", "damaged"), ("worker-1", "interrupted"), ("worker-2", "finished"),
    ]  # fmt: skip
    (run_named / ".lock").write_text("")
    assert inspect_all(run_named) == []
    put(run_named, AT_WORK)
    assert [each.reason for each in inspect_all(run_named)] == ["interrupted"]
    (tmp_path / "way").symlink_to(run_named)
    assert [each.reason for each in inspect_all(tmp_path / "way")] == ["interrupted"]


@pytest.mark.parametrize("on_restart", ["ask", "stop"])
def test_what_on_restart_would_do_is_said(on_restart: str, tmp_path: Path) -> None:
    run = put(tmp_path, [j.started(on_restart=on_restart), *AT_WORK[1:]])
    assert "(on_restart)" in inspect(run).detail


def claimed_in(runs: Path) -> Json:
    return j.claimed() | {"machine_id": machine_id(), "runs_inode": runs.stat().st_ino}


def test_what_a_daemon_would_hold_back_is_said(tmp_path: Path) -> None:
    """A run that was worked on elsewhere; and all of them, where somebody asked for it."""
    stays = put(tmp_path, [j.started(), claimed_in(tmp_path), j.inferring()])
    assert (inspect(stays).held, inspect(stays).revivable) == (None, True)
    copied = put(tmp_path / "a copy", AT_WORK)
    assert inspect(copied).held == ELSEWHERE
    (tmp_path / "HOLD").write_text("an upgrade\n")
    assert inspect(stays).held == "an upgrade"
    assert [found.held for found in inspect_all(tmp_path)] == ["an upgrade"]
