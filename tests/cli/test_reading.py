"""Reading verbs: data on stdout, JSON on request, and nothing foreign reaches the terminal unescaped."""

import json
import os
import pty
import subprocess

import pytest

from onward.core.vocabulary import Outcome, SettledBy
from tests.cli.records import COMPLETED, FAILED, NO_KEY, batch, done, handed_over, turn
from tests.cli.serving import Cli, Daemon

NASTY = "\x1b[2Jrm\r\u202e\u200bx\x9b31m\x7f"
FORBIDDEN = ["\x7f", "\x1b", "\r", "\u202e", "\u200b", "\x9b"]


def test_ps_lists_what_is_not_ended_and_all_on_request(daemon: Daemon, cli: Cli) -> None:
    first, second, third = daemon.start("first"), daemon.start("second"), daemon.start("third", agent="coder")
    daemon.append(first, COMPLETED)
    daemon.append(second, NO_KEY)
    shown = cli("ps")
    assert (shown.returncode, shown.stderr) == (0, "")
    lines = shown.stdout.splitlines()
    assert lines[0].split() == ["RUN", "AGENT", "STATUS", "STAGE", "TURN", "AGE", "COST", "WAITS", "FOR", "TASK"]
    assert [line.split()[:3] for line in lines[1:]] == [[third, "coder", "active"], [second, "worker", "parked"]]
    assert first in cli("ps", "-a").stdout
    listed = [json.loads(line) for line in cli("ps", "-a", "--json").stdout.splitlines()]
    assert [run["run_id"] for run in listed] == [third, second, first]


def test_nothing_to_list_leaves_stdout_empty(daemon: Daemon, cli: Cli) -> None:
    shown = cli("ps")
    assert (shown.returncode, shown.stdout) == (0, "")
    assert "no run is unfinished" in shown.stderr


def test_everything_foreign_is_escaped_before_the_terminal(daemon: Daemon, cli: Cli) -> None:
    run = daemon.start(NASTY, limits={"note": NASTY})
    daemon.append(run, turn(NASTY), batch(NASTY), handed_over("t1c1"), done("t1c1", NASTY, Outcome.ERROR), FAILED)
    for args in (["ps", "-a"], ["show", run], ["logs", run], ["ps", "-a", "--json"], ["logs", run, "--json"]):
        shown = cli(*args).stdout
        assert ("\\u001b" if "--json" in args else "\\u{1b}") in shown
        assert not [character for character in FORBIDDEN if character in shown], args


def test_a_foreign_line_cannot_look_like_a_line_of_the_timeline(daemon: Daemon, cli: Cli) -> None:
    run = daemon.start("task")
    forged = "fine\n12:00:00  completed   everything is in order"
    daemon.append(run, turn(forged), batch("cat"), handed_over("t1c1"), done("t1c1", forged))
    lines = cli("logs", run).stdout.splitlines()
    assert not [line for line in lines if line.startswith("12:00:00")]
    assert len([line for line in lines if "everything is in order" in line and "│" in line]) == 2


def test_the_timeline_tells_what_became_of_each_call(daemon: Daemon, cli: Cli) -> None:
    run = daemon.start("task")
    daemon.append(
        run,
        turn("I work."),
        batch("one", "two", "three"),
        handed_over("t1c1"),
        handed_over("t1c2"),
        done("t1c1", "1", reason="completed-unpersisted"),
        done("t1c2", "[error] interrupted: ...", Outcome.INTERRUPTED, settled_by=SettledBy.RECOVERY),
        done("t1c3", "[error] not started: ...", Outcome.NOT_STARTED, settled_by=SettledBy.RECOVERY),
        COMPLETED,
    )
    shown = cli("logs", run).stdout
    for text in (
        "I work.",
        "t1c2 shell  two",
        "t1c1 shell  ok, its real result was found (0.5 s)",
        "t1c2 shell  INTERRUPTED: outcome unknown, not retried",
        "t1c3 shell  never started",
        "all done",
    ):
        assert text in shown


def test_logs_can_be_cut_at_both_ends_and_are_the_records_as_json(daemon: Daemon, cli: Cli) -> None:
    run = daemon.start("task")
    daemon.append(run, turn("first"), turn("second", 2), turn("third", 3), COMPLETED)
    records = [json.loads(line) for line in cli("logs", run, "--json").stdout.splitlines()]
    assert [record["seq"] for record in records] == [1, 2, 3, 4, 5]
    assert [json.loads(line)["seq"] for line in cli("logs", run, "--json", "--after", "3").stdout.splitlines()] == [
        4,
        5,
    ]
    assert [json.loads(line)["seq"] for line in cli("logs", run, "--json", "-n", "2").stdout.splitlines()] == [4, 5]
    assert cli("logs", run, "--json", "-n", "0", "-f").stdout == ""
    last = cli("logs", run, "-n", "2").stdout
    assert ("second" in last, "third" in last, "all done" in last) == (False, True, True)


def test_show_tells_all_of_a_run(daemon: Daemon, cli: Cli) -> None:
    run = daemon.start("a task\nof two lines", limits={"turns": 5})
    daemon.append(run, turn("text"), batch("ls"), NO_KEY)
    shown = cli("show", run).stdout
    for text in (run, "parked", "no key", "turns 5", "$0.25", "t1c1 shell: not yet", "of two lines"):
        assert text in shown
    assert json.loads(cli("show", run, "--json").stdout)["status"] == "parked"


def test_a_run_is_named_by_any_beginning_that_only_it_has(daemon: Daemon, cli: Cli) -> None:
    first, second, third = daemon.start(), daemon.start(), daemon.start(agent="coder")
    assert cli("show", "cod").stdout.startswith(f"run        {third}")
    assert cli("show", first).returncode == 0
    several = cli("show", "work")
    assert (several.returncode, several.stdout) == (2, "")
    assert first in several.stderr
    assert second in several.stderr
    assert cli("show", "nothing").returncode == 4
    for wrong in ("../x", "", "/etc", "a\nb"):
        assert cli("show", wrong).returncode == 2


@pytest.mark.parametrize(("changes", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)])
def test_escapes_only_for_a_terminal_that_wants_them(
    changes: dict[str, str], coloured: bool, daemon: Daemon, cli: Cli
) -> None:
    daemon.start()
    assert "\x1b" not in cli("ps").stdout
    ours, theirs = pty.openpty()
    env = cli.environment(**{"TERM": "xterm", **changes})
    subprocess.run(cli.argv("ps"), stdout=theirs, env=env, check=True, timeout=60)
    os.close(theirs)
    shown = os.read(ours, 65536).decode()
    os.close(ours)
    assert ("\x1b" in shown) is coloured


def test_a_reader_that_goes_away_ends_it_quietly(daemon: Daemon, cli: Cli) -> None:
    run = daemon.start()
    daemon.append(run, *(turn("x" * 10_000, number) for number in range(1, 30)))
    ours, theirs = os.pipe()
    os.close(ours)
    shown = subprocess.run(
        cli.argv("logs", run), stdout=theirs, stderr=subprocess.PIPE, env=cli.environment(), timeout=60
    )
    os.close(theirs)
    assert (shown.returncode, shown.stderr) == (141, b"")


def test_status_shows_the_daemon_and_its_recovery(daemon: Daemon, cli: Cli) -> None:
    run = daemon.start()
    daemon.operations.recovery |= {
        "counts": {"resumed": 2, "parked": 1},
        "reasons": [{"run_id": run, "outcome": "parked", "reason": "no \x1bkey"}],
    }
    shown = cli("status")
    assert (shown.returncode, shown.stderr) == (0, "")
    for text in (f"pid {os.getpid()}", "1 active", "1 parked, 2 resumed", f"{run} parked: no \\u{{1b}}key"):
        assert text in shown.stdout
    assert json.loads(cli("status", "--json").stdout)["running"] is True
