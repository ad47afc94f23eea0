"""Starting and following: every record once, whatever happens to the daemon; the exit code tells the end."""

import json
import signal
import subprocess
from pathlib import Path
from typing import IO

import pytest

from onward.api import events
from onward.cli.keeping import Kept, kept_file, start_ticks, write_kept
from onward.core.records import Record, RunPaused, RunQuarantined, RunResumed
from onward.testing.fake_operations import FakeOperations
from tests.cli.records import COMPLETED, FAILED, NO_KEY, NO_MONEY, turn
from tests.cli.serving import Cli, Daemon, serving
from tests.support import until

BROKEN = RunQuarantined(by="daemon", reason="an error")
PAUSED = RunPaused(by="daemon", reason="on_restart")
RESUMED = RunResumed(by="root", reason="asked")


def read_until(stream: IO[str] | None, text: str) -> str:
    assert stream is not None
    seen = ""
    while text not in seen:
        line = stream.readline()
        assert line, f"ended before {text!r}: {seen}"
        seen += line
    return seen


@pytest.mark.parametrize(
    ("record", "code"),
    [(COMPLETED, 0), (FAILED, 1), (NO_KEY, 5), (BROKEN, 5), (PAUSED, 5), (NO_MONEY, 6)],
    ids=lambda value: getattr(value, "status", getattr(value, "reason", str(value))),
)
def test_the_exit_code_of_run_and_wait_is_how_the_run_stands(
    record: Record, code: int, daemon: Daemon, cli: Cli
) -> None:
    daemon.operations.script = (turn("I work."), record)
    followed = cli("run", "the task")
    assert followed.returncode == code, followed.stderr
    run_id = followed.stderr.splitlines()[0]
    assert daemon.operations.requests[run_id].workspace == str(cli.home)
    assert "I work." in followed.stdout
    assert cli("wait", run_id).returncode == code


def test_a_detached_run_prints_its_id_only(daemon: Daemon, cli: Cli) -> None:
    shown = cli("run", "-d", "-w", "sub", "--model", "scripted/s.json", "--on-restart", "stop", "task")
    asked = daemon.operations.requests[shown.stdout.strip()]
    assert (asked.workspace, asked.model) == (str(cli.home / "sub"), f"scripted/{cli.home}/s.json")
    assert (asked.on_restart, asked.agent, shown.stderr) == ("stop", None, "")
    assert asked.idempotency_key


def test_the_same_key_starts_one_run(daemon: Daemon, cli: Cli) -> None:
    first, second = (cli("run", "-d", "--idempotency-key", "k", "task").stdout for _ in range(2))
    assert first == second


def test_a_past_stop_does_not_end_the_following(daemon: Daemon, cli: Cli) -> None:
    daemon.operations.script = (NO_KEY, RESUMED)
    with cli.start("run", "task") as followed:
        read_until(followed.stdout, "resumed")
        run_id = next(iter(daemon.operations.runs))
        daemon.append(run_id, COMPLETED)
        assert followed.wait(30) == 0
        followed.communicate()


def test_ctrl_c_detaches_and_says_how_to_follow_again(daemon: Daemon, cli: Cli) -> None:
    daemon.operations.script = (turn("I work."),)
    with cli.start("run", "task") as followed:
        read_until(followed.stdout, "I work.")
        followed.send_signal(signal.SIGINT)
        _, told = followed.communicate(timeout=30)
    run_id = next(iter(daemon.operations.runs))
    assert followed.returncode == 130
    assert f"{run_id} goes on. Follow it again: onward logs {run_id} -f" in told
    assert "Traceback" not in told
    assert daemon.operations.runs[run_id].status == "active"


def test_a_restart_of_the_daemon_leaves_neither_gap_nor_double(cli: Cli) -> None:
    operations = FakeOperations()
    with serving(cli.socket, operations) as daemon:
        run_id = daemon.start("task")
        daemon.append(run_id, turn("before", 1))
        followed = cli.start("logs", run_id, "-f", "--json")
        seen = read_until(followed.stdout, "before")
    told = read_until(followed.stderr, "the daemon is gone")
    with serving(cli.socket, operations) as daemon:
        daemon.append(run_id, turn("between", 2), turn("after", 3), COMPLETED)
        rest, rest_told = followed.communicate(timeout=30)
    seqs = [json.loads(line)["seq"] for line in (seen + rest).splitlines()]
    assert (followed.returncode, seqs) == (0, [1, 2, 3, 4, 5])
    assert "the daemon is back" in told + rest_told


def test_what_stops_a_run_without_a_record_is_noticed_at_a_heartbeat(cli: Cli) -> None:
    operations = FakeOperations()
    with serving(cli.socket, operations, heartbeat_s=0.05) as daemon:
        run_id = daemon.start("task")
        with cli.start("wait", run_id) as waiting:
            until(lambda: daemon.call(lambda: operations.watchers) == 1)
            daemon.call(setattr, operations.runs[run_id], "status", "quarantined")
            assert waiting.wait(30) == 5
            waiting.communicate()


def test_waiting_has_a_limit(daemon: Daemon, cli: Cli) -> None:
    run_id = daemon.start("task")
    shown = cli("wait", run_id, "--timeout", "0.2")
    assert (shown.returncode, shown.stdout) == (124, "")
    assert "goes on" in shown.stderr


def test_more_followers_than_streams_still_see_the_end(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    operations = FakeOperations()
    monkeypatch.setattr(events.StreamSlots.__init__, "__defaults__", (0,))
    with serving(cli.socket, operations) as daemon:
        run_id = daemon.start("task")
        daemon.append(run_id, turn("text"), COMPLETED)
        shown = cli("logs", run_id, "-f", "--json")
    assert [json.loads(line)["seq"] for line in shown.stdout.splitlines()] == [1, 2, 3]


def test_a_request_that_was_cut_off_is_asked_again_under_the_same_key(cli: Cli) -> None:
    import socket as sockets

    with sockets.socket(sockets.AF_UNIX) as dying:
        dying.bind(str(cli.socket))
        dying.listen()
        asking = cli.start("run", "-d", "task")
        asked = b""
        while not asked.startswith(b"POST"):  # before it: is somebody there, is it ready
            connection = dying.accept()[0]
            asked = connection.recv(65536)
            if asked.startswith(b"GET"):
                connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n{}")
            connection.close()
    assert asked.startswith(b"POST /v1/runs")
    cli.socket.unlink()
    operations = FakeOperations()
    with serving(cli.socket, operations):
        printed, told = asking.communicate(timeout=30)
    assert asking.returncode == 0, told
    key = operations.requests[printed.strip()].idempotency_key
    assert f"idempotency-key: {key}".encode() in asked.lower()


def test_down_waits_until_the_process_is_gone(cli: Cli, tmp_path: Path) -> None:
    operations = FakeOperations()
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process, serving(cli.socket, operations):
        operations.pid = process.pid
        with cli.start("down", "--leave-running") as stopping:
            until(lambda: operations.stops)
            assert stopping.poll() is None
            process.communicate()
            _, told = stopping.communicate(timeout=30)
    assert (stopping.returncode, operations.stops) == (0, [True])
    assert f"the daemon (pid {process.pid}) has stopped and left the commands running" in told


def test_down_waits_for_the_keeper_that_has_taken_away_what_it_told(cli: Cli) -> None:
    operations = FakeOperations()
    keeping = ["sh", "-c", "read _; sleep 1"]
    with (
        subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process,
        subprocess.Popen(keeping, stdin=subprocess.PIPE) as keeper,
        serving(cli.socket, operations),
    ):
        operations.pid = process.pid
        write_kept(cli.socket, Kept(pid=keeper.pid, start_ticks=start_ticks(keeper.pid) or 0))
        with cli.start("down") as stopping:
            until(lambda: operations.stops)
            kept_file(cli.socket).unlink()
            process.communicate()
            assert keeper.stdin is not None
            keeper.stdin.close()
            stopping.communicate(timeout=30)
            assert start_ticks(keeper.pid) is None
    assert stopping.returncode == 0


def test_up_finds_the_daemon_that_runs(daemon: Daemon, cli: Cli) -> None:
    shown = cli("up")
    assert (shown.returncode, shown.stdout) == (0, "")
    assert "was running already" in shown.stderr
