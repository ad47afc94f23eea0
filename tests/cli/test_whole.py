"""The command line and the real daemon together."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.serving import Cli
from tests.support import until

SCRIPT = {"turns": [{"text": "I work.", "calls": [{"name": "shell", "arguments": {"command": "echo hello"}}]}, {}]}


@pytest.fixture
def instance(cli: Cli) -> Iterator[Cli]:
    """Nothing runs at first; nothing runs afterwards."""
    (cli.home / "script.json").write_text(json.dumps(SCRIPT))
    yield cli
    cli("down")


def daemon_pid(cli: Cli) -> int:
    return int(json.loads(cli("status", "--json").stdout)["pid"])


def test_a_run_starts_the_daemon_it_needs_and_is_followed_to_its_end(instance: Cli) -> None:
    done = instance("run", "-a", "rehearsal", "--model", "scripted/script.json", "say hello")
    assert done.returncode == 0, done.stderr
    assert "hello" in done.stdout
    run_id = done.stderr.splitlines()[0]
    assert f"{run_id}  rehearsal  completed" in instance("ps", "-a").stdout
    inspected = json.loads(instance("inspect", run_id[:-1], "--json").stdout)
    assert (inspected["run_id"], inspected["revivable"], inspected["reason"]) == (run_id, False, "finished")
    stopped = instance("down")
    assert (stopped.returncode, instance("status").returncode) == (0, 3)
    assert (instance.home / "daemon.log").stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
def test_up_is_done_when_the_daemon_is_ready_and_down_when_it_is_gone(instance: Cli) -> None:
    assert "runs" in instance("up").stderr
    pid = daemon_pid(instance)
    assert os.getsid(pid) == pid
    assert os.readlink(f"/proc/{pid}/cwd") == "/"
    assert "was running already" in instance("up").stderr
    assert daemon_pid(instance) == pid
    assert f"(pid {pid}) has stopped" in instance("down").stderr
    assert not instance.socket.exists()


def test_a_daemon_that_cannot_begin_is_heard(instance: Cli) -> None:
    instance.socket.write_text("precious")
    failed = instance("up")
    assert failed.returncode == 8
    assert "it was left alone" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert instance.socket.read_text() == "precious"
    instance.socket.unlink()


def test_a_second_daemon_is_refused_and_the_first_goes_on(instance: Cli) -> None:
    instance("up")
    pid = daemon_pid(instance)
    second = instance("daemon", ONWARD_DAEMON__LOCK_WAIT_S="0", ONWARD_SOCKET=str(instance.home / "other.sock"))
    assert second.returncode == 8
    assert f"{pid}" in second.stderr
    assert daemon_pid(instance) == pid


def test_a_home_that_cannot_be_made_is_named_with_what_to_do(instance: Cli) -> None:
    failed = instance("up", ONWARD_HOME="/proc/none")
    assert failed.returncode == 1
    assert "the directory /proc/none cannot be made" in failed.stderr
    assert "ONWARD_HOME" in failed.stderr


def test_a_long_log_is_set_aside_at_the_start(instance: Cli) -> None:
    log = instance.home / "daemon.log"
    log.write_text("x" * (2 << 20))
    instance("up")
    assert log.stat().st_size < 1 << 20
    assert (instance.home / "daemon.log.1").stat().st_size == 2 << 20


def test_following_goes_on_through_kill_9_of_the_daemon(instance: Cli) -> None:
    script = {"turns": [{"text": "I wait.", "calls": [{"name": "shell", "arguments": {"command": "cat < go"}}]}, {}]}
    (instance.home / "script.json").write_text(json.dumps(script))
    os.mkfifo(instance.home / "go")
    instance("up")
    with instance.start("run", "-a", "rehearsal", "--model", "scripted/script.json", "wait") as followed:
        assert followed.stdout is not None
        until(lambda: "t1c1" in (followed.stdout.readline() if followed.stdout else ""))
        os.kill(daemon_pid(instance), signal.SIGKILL)
        instance("up")
        (instance.home / "go").write_text("the real result\n")
        rest, told = followed.communicate(timeout=60)
    assert followed.returncode == 0, told
    assert re.search(r"t1c1 shell  ok.*\n.*the real result", rest)


def test_a_run_is_revived_while_no_daemon_runs_and_goes_on_with_the_next(instance: Cli) -> None:
    """inspect, revive, revive again, and the run's end; and what cannot be revived says why."""
    fails = {"calls": [{"name": "finish", "arguments": {"result": "no luck", "status": "failed"}}]}
    (instance.home / "script.json").write_text(json.dumps({"turns": [fails, {"text": "better"}]}))
    failed = instance("run", "-a", "rehearsal", "--model", "scripted/script.json", "try")
    assert failed.returncode == 1, failed.stderr
    run_id = failed.stderr.splitlines()[0]
    instance("down")
    inspected = instance("inspect", run_id)
    assert re.search(rf"goes on +by hand .onward revive {run_id}.\nreason +ended\n", inspected.stdout)
    first, again = instance("revive", run_id[:-2]), instance("revive", run_id)
    assert (first.returncode, again.returncode) == (0, 0), first.stderr + again.stderr
    assert f"{run_id} is revived (it was ended); it goes on when the daemon starts" in first.stderr
    instance("up")
    assert instance("wait", run_id).stdout == "completed\n"
    assert json.loads(instance("show", run_id, "--json").stdout)["totals"]["revivals"] == 1
    over = instance("revive", str(instance.home / "runs" / run_id))
    assert (over.returncode, "is not revived: finished" in over.stderr) == (1, True)
    missing = instance("revive", "worker-none")
    assert (missing.returncode, "Traceback" in missing.stderr) == (4, False)


@pytest.mark.slow
def test_the_demo_keeps_its_word_and_leaves_nothing(tmp_path: Path) -> None:
    env = {**os.environ, "TMPDIR": str(tmp_path), "ONWARD_HOME": "/nonexistent"}
    done = subprocess.run(
        [sys.executable, "-m", "onward", "demo"], capture_output=True, text=True, env=env, timeout=110
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Nothing ran twice" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_inspect_writes_nothing_and_says_what_is_not_there(cli: Cli) -> None:
    (cli.home / "empty").mkdir()
    for target, code in (("/nonexistent", 4), ("nothing", 4), ("../x", 4)):
        shown = cli("inspect", target)
        assert (shown.returncode, shown.stdout) == (code, "")
    assert sorted(path.name for path in cli.home.iterdir()) == ["empty"]
