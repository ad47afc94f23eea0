"""A daemon that `onward up` started comes back by itself, within limits, and `onward down` ends it for good."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onward.cli.keeping import LONGEST_DELAY_S, MOST_FAILURES, Kept, judge, read_kept, start_ticks, write_kept
from onward.core.daemon_facts import CRASH_LOOP, CRASH_LOOP_S
from onward.processes.launcher_kernel import read_small
from tests.cli.serving import Cli
from tests.support import PATIENCE_S, until

Json = dict[str, Any]


@pytest.fixture
def instance(cli: Cli) -> Iterator[Cli]:
    yield cli
    cli("down")


def told(cli: Cli) -> Json:
    known: Json = json.loads(cli("status", "--json").stdout)
    return known


def kill_daemon(cli: Cli) -> Json:
    """Kill the daemon, and wait until its keeper has brought it back; returns what is told then."""
    before = told(cli)
    os.kill(before["pid"], signal.SIGKILL)
    known: Json = {}

    def is_back() -> bool:
        nonlocal known
        known = told(cli)
        return bool(known["running"] and known["pid"] != before["pid"])

    until(is_back, PATIENCE_S)
    return known


def test_a_killed_daemon_comes_back_and_down_ends_both(instance: Cli) -> None:
    instance("up")
    keeper = told(instance)["keeper"]["pid"]
    back = kill_daemon(instance)
    assert back["keeper"] | {"pid": 0} == {
        "pid": 0, "restarts": 1, "last_end": "it was ended by signal 9", "given_up": None,
    }  # fmt: skip
    assert back["keeper"]["pid"] == keeper
    assert "has started the daemon again 1 times" in instance("status").stdout
    stopped = instance("down")
    assert f"(pid {back['pid']}) has stopped" in stopped.stderr
    assert start_ticks(back["pid"]) is None
    assert start_ticks(keeper) is None
    assert instance("status").returncode == 3


def with_a_dead_daemon(instance: Cli) -> int:
    """Start a daemon and kill it while its keeper is stopped; returns the keeper's pid."""
    instance("up")
    known = told(instance)
    keeper = known["keeper"]["pid"]
    os.kill(keeper, signal.SIGSTOP)
    os.kill(known["pid"], signal.SIGKILL)
    until(lambda: start_ticks(known["pid"]) is None)
    return int(keeper)


@pytest.mark.parametrize(("verb", "code", "says"), [(["ps"], 0, "no run"), (["pause", "worker-1"], 4, "no run")])
def test_whoever_asks_while_the_daemon_is_being_started_again_waits_for_it(
    instance: Cli, verb: list[str], code: int, says: str
) -> None:
    keeper = with_a_dead_daemon(instance)
    with instance.start(*verb) as asked:
        assert asked.stderr is not None
        assert asked.stderr.readline() == f"waiting for the daemon, which its keeper (pid {keeper}) starts again\n"
        os.kill(keeper, signal.SIGCONT)
        _, said = asked.communicate(timeout=60)
    assert (asked.returncode, says in said) == (code, True), said


@pytest.mark.slow
def test_a_daemon_that_cannot_come_back_is_given_up_and_status_says_why(instance: Cli) -> None:
    keeper = with_a_dead_daemon(instance)
    instance.socket.unlink()
    instance.socket.write_text("precious")
    os.kill(keeper, signal.SIGCONT)
    until(lambda: start_ticks(keeper) is None, PATIENCE_S)
    instance.socket.unlink()
    shown = instance("status")
    assert shown.returncode == 3
    assert "it was given up: it ended with exit code 8: another daemon holds the runs" in shown.stderr
    assert instance("up").returncode == 0
    assert told(instance)["keeper"]["given_up"] is None


@pytest.mark.slow
def test_a_daemon_whose_keeper_is_gone_is_said_to_be_alone(instance: Cli) -> None:
    instance("up")
    keeper = told(instance)["keeper"]["pid"]
    os.kill(keeper, signal.SIGKILL)
    until(lambda: start_ticks(keeper) is None)
    assert "nobody starts it again when it dies" in instance("status").stdout
    assert instance("down").returncode == 0
    assert instance("up").returncode == 0
    assert "nobody starts it again" not in instance("status").stdout


@pytest.mark.slow
def test_down_while_the_daemon_is_dead_ends_its_keeper(instance: Cli) -> None:
    keeper = with_a_dead_daemon(instance)
    with instance.start("down") as down:
        until(lambda: pending(keeper, signal.SIGTERM))
        os.kill(keeper, signal.SIGCONT)
        _, said = down.communicate(timeout=60)
    assert f"its keeper (pid {keeper}) has ended" in said
    assert start_ticks(keeper) is None
    assert instance("status").returncode == 3


def pending(pid: int, number: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    return bool(int(status.partition("ShdPnd:")[2].split()[0], 16) >> (number - 1) & 1)


@pytest.mark.slow
def test_an_up_while_the_daemon_ends_starts_the_next_one(instance: Cli) -> None:
    """The keeper that it finds at work is about to end with its daemon, and starts none."""
    instance("up")
    known = told(instance)
    os.kill(known["keeper"]["pid"], signal.SIGSTOP)
    with instance.start("down") as down:
        until(lambda: start_ticks(known["pid"]) is None)
        with instance.start("up") as up:
            assert up.stderr is not None
            assert "is starting the daemon" in up.stderr.readline()
            os.kill(known["keeper"]["pid"], signal.SIGCONT)
            assert up.wait(60) == 0
        assert down.wait(60) == 0
    assert told(instance)["keeper"]["pid"] not in (None, known["keeper"]["pid"])


@pytest.mark.slow
def test_what_a_dead_keeper_has_told_is_not_said_of_the_next_one(instance: Cli) -> None:
    """The machine went down, say, after it had started its daemon again a few times."""
    write_kept(instance.socket, Kept(pid=os.getpid(), start_ticks=0, restarts=5, last_end="it was ended by signal 9"))
    up = instance("up")
    assert (up.returncode, told(instance)["keeper"]["restarts"]) == (0, 0), up.stderr


def test_a_keeper_that_is_ended_between_two_daemons_leaves_nothing(cli: Cli) -> None:
    environment = cli.environment(ONWARD_DAEMON__RUNS_DIR="/dev/null/runs")
    argv = [sys.executable, "-m", "onward.cli.keeper", str(cli.socket)]
    with subprocess.Popen(argv, env=environment, stderr=subprocess.DEVNULL) as keeper:
        until(lambda: (kept := read_kept(cli.socket)) is not None and kept.restarts, PATIENCE_S)
        keeper.terminate()
    assert read_kept(cli.socket) is None


def test_a_keeper_that_cannot_start_a_process_tries_again(cli: Cli) -> None:
    """There is none to be had for a while, or the installation is being replaced."""
    keep = "import sys; from onward.cli.keeper import *; sys.executable = '/none'; Keeper(Path(sys.argv[1])).run()"
    argv = [sys.executable, "-c", keep, str(cli.socket)]
    with subprocess.Popen(argv, env=cli.environment(), stderr=subprocess.DEVNULL) as keeper:
        until(lambda: (kept := read_kept(cli.socket)) is not None and kept.restarts > 1)
        keeper.terminate()
    assert read_kept(cli.socket) is None


@pytest.mark.slow
def test_two_ups_at_once_make_one_daemon(instance: Cli) -> None:
    with instance.start("up") as one, instance.start("up") as other:
        outputs = [each.communicate(timeout=90) for each in (one, other)]
    assert (one.returncode, other.returncode) == (0, 0), outputs
    assert len({said.rsplit("(pid ", 1)[-1].split(")")[0] for _, said in outputs}) == 1


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("unshare") is None or os.geteuid() != 0, reason="needs a pid namespace")
def test_as_process_1_of_a_container_it_reaps_and_ends_commands_in_good_order(instance: Cli) -> None:
    os.mkfifo(instance.home / "go")
    argv = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    up = [sys.executable, "-m", "onward", "up", "--foreground"]
    container = subprocess.Popen([*argv, *up], env=instance.environment(), stderr=subprocess.DEVNULL)
    try:
        (first,) = until(lambda: children(container.pid))
        until(lambda: instance("status").returncode == 0, PATIENCE_S)
        runs = [start_waiting(instance, command) for command in ("cat < go", "sleep 600")]
        # The launchers of a daemon that dies are left to process 1.
        (daemon,) = daemons(first)
        os.kill(daemon, signal.SIGKILL)
        until(lambda: len(children(first)) == 3 and daemon not in children(first), PATIENCE_S)
        (instance.home / "go").write_text("the real result\n")
        until(lambda: len(children(first)) == 2, PATIENCE_S)  # one that was not reaped would stay
        until(lambda: all(len(records(instance, run, "RunClaimed")) == 2 for run in runs), PATIENCE_S)
        until(lambda: records(instance, runs[0], "RunEnded"), PATIENCE_S)
        os.kill(first, signal.SIGTERM)
        assert container.wait(60) == 0
    finally:
        container.kill()
        container.wait(10)
    ends = [done for run_id in runs for done in records(instance, run_id, "ToolCallDone")]
    assert sorted(done["outcome"] for done in ends) == ["interrupted", "ok"]
    (stopped,) = [done for done in ends if done["outcome"] == "interrupted"]
    assert stopped["evidence"]["ended_by"] == "stop"


def start_waiting(cli: Cli, command: str) -> str:
    script = {"turns": [{"calls": [{"name": "shell", "arguments": {"command": command}}]}, {"text": "Done."}]}
    (cli.home / "script.json").write_text(json.dumps(script))
    run_id = cli("run", "-d", "-a", "rehearsal", "--model", "scripted/script.json", "wait").stdout.strip()
    until((cli.home / "runs" / run_id / "calls" / "t1c1" / "identity").exists, PATIENCE_S)
    return run_id


def records(cli: Cli, run_id: str, kind: str) -> list[Json]:
    lines = (cli.home / "runs" / run_id / "journal.jsonl").read_bytes().splitlines()
    found = [json.loads(line[: line.rindex(b"}") + 1]) for line in lines]
    return [record for record in found if record["type"] == kind]


def children(pid: int) -> list[int]:
    return [int(name) for name in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def daemons(keeper: int) -> list[int]:
    return [pid for pid in children(keeper) if b"daemon" in read_small(f"/proc/{pid}/cmdline")]


@pytest.mark.parametrize(
    ("code", "failures", "asked", "act", "delay_s"),
    [
        (0, 1, False, "end", 0.0),
        (1, 1, True, "end", 0.0),
        (-9, 1, False, "again", 0.5),
        (1, 2, False, "again", 1.0),
        (-6, 5, False, "again", 8.0),
        (-6, 6, False, "again", LONGEST_DELAY_S),
        (-9, MOST_FAILURES - 1, False, "again", LONGEST_DELAY_S),
        (-9, MOST_FAILURES, False, "hold", LONGEST_DELAY_S),
        (-9, MOST_FAILURES + 1, False, "give up", 0.0),
        (78, 1, False, "give up", 0.0),
        (8, 1, False, "give up", 0.0),
        (2, 1, False, "give up", 0.0),
    ],
)
def test_what_follows_from_an_end(code: int, failures: int, asked: bool, act: str, delay_s: float) -> None:
    verdict = judge(code, failures=failures, asked=asked)
    assert (verdict.act, verdict.delay_s) == (act, delay_s)
    assert verdict.reason


def test_a_daemon_that_dies_again_and_again_holds_its_runs_before_it_is_given_up() -> None:
    """It counts its deaths within a while; the keeper must not be slower than that, nor give up before."""
    delays = [judge(-9, failures=n, asked=False).delay_s for n in range(1, CRASH_LOOP + 1)]
    assert CRASH_LOOP < MOST_FAILURES
    assert sum(delays) < CRASH_LOOP_S / 2
