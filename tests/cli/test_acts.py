"""Acting on runs: done once, said what was done, and refused where it makes no sense."""

import os
import pty
import subprocess

import pytest

from onward.core.records import RunEnded
from tests.cli.records import COMPLETED, NO_MONEY, batch, handed_over, turn
from tests.cli.serving import Cli, Daemon
from tests.support import until


def said(daemon: Daemon, run: str) -> list[str]:
    return [line["content"] for line in daemon.operations.journals[run] if line["type"] == "MessageAdded"]


def test_a_message_is_sent_from_the_command_line_or_stdin(daemon: Daemon, cli: Cli) -> None:
    run = daemon.start()
    assert cli("send", run[:-1], "hello there").returncode == 0
    piped = subprocess.run(
        cli.argv("send", run, "-"),
        input="from\nstdin",
        env=cli.environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (piped.returncode, piped.stdout) == (0, "")
    assert "said; it hears it with its next request" in piped.stderr
    assert said(daemon, run) == ["hello there", "from\nstdin"]


def test_pause_and_resume_say_what_they_did_and_may_be_repeated(daemon: Daemon, cli: Cli) -> None:
    run = daemon.start()
    daemon.append(run, turn("I work."), batch("sleep 1", "sleep 2"), handed_over("t1c1"))
    first, again = cli("pause", run, "--reason", "lunch"), cli("pause", run)
    assert (first.returncode, again.returncode) == (0, 0)
    assert "is paused; 1 of its calls still run" in first.stderr
    assert "was paused already: lunch" in again.stderr
    assert "it is paused and hears it when it is resumed" in cli("send", run, "later").stderr
    first, again = cli("resume", run), cli("resume", run)
    assert (first.returncode, again.returncode) == (0, 0)
    assert "goes on" in first.stderr
    assert "was not paused or parked" in again.stderr


def test_limits_are_raised_by_name(daemon: Daemon, cli: Cli) -> None:
    run = daemon.start(limits={"cost_usd": 5.0, "turns": 3})
    daemon.append(run, NO_MONEY)
    assert cli("wait", run).returncode == 6
    shown = cli("resume", run, "--add-cost-usd", "2.5", "--add-turns", "10")
    assert shown.returncode == 0
    assert "the limit cost_usd is 7.5 now, the limit turns is 13 now" in shown.stderr
    assert daemon.operations.runs[run].status == "active"


def test_a_revive_says_what_it_did_and_may_be_repeated(daemon: Daemon, cli: Cli) -> None:
    run, ended = daemon.start(), daemon.start()
    daemon.append(run, RunEnded(status="failed", reason="no money"))
    daemon.append(ended, COMPLETED)
    first, again, over = cli("revive", run), cli("revive", run), cli("revive", ended)
    assert (first.returncode, again.returncode, over.returncode) == (0, 0, 1)
    assert "is revived (it was ended) and goes on" in first.stderr
    assert "is at work already" in again.stderr
    assert "is not revived: finished" in over.stderr
    assert "Traceback" not in over.stderr


def test_a_cancel_is_for_good(daemon: Daemon, cli: Cli) -> None:
    run, ended = daemon.start(), daemon.start()
    daemon.append(ended, COMPLETED)
    first, again = cli("cancel", run), cli("cancel", run)
    assert (first.returncode, again.returncode) == (0, 0)
    assert (f"{run} is cancelled" in first.stderr, "was cancelled already" in again.stderr) == (True, True)
    late = cli("cancel", ended)
    assert (late.returncode, "is over already: completed" in late.stderr) == (1, True)
    for args in (["send", run, "x"], ["pause", run], ["resume", run]):
        assert cli(*args).returncode == 1
    assert cli("send", "worker-nobody", "x").returncode == 4


def test_limits_of_a_new_run_are_given_with_it(daemon: Daemon, cli: Cli) -> None:
    run = cli("run", "-d", "--max-cost-usd", "1.5", "--max-turns", "7", "task").stdout.strip()
    assert daemon.operations.requests[run].limits == {"cost_usd": 1.5, "turns": 7}


def test_a_reload_says_what_is_wrong(daemon: Daemon, cli: Cli) -> None:
    assert cli("reload").returncode == 0
    problem = "/x/onward.toml:3: unknown key 'a'; did you mean 'b'?"
    daemon.operations.config = {"ok": False, "problems": [problem], "loaded_at": None, "restart_needed": []}
    shown = cli("reload")
    assert (shown.returncode, problem in shown.stderr) == (78, True)
    assert problem in cli("status").stdout
    daemon.operations.config = {"ok": True, "problems": [], "loaded_at": None, "restart_needed": ["daemon.runs_dir"]}
    shown = cli("reload")
    assert (shown.returncode, "daemon.runs_dir" in shown.stderr) == (0, True)


@pytest.mark.parametrize("args", [["run", "task"], ["logs", "-f"]], ids=["run", "logs -f"])
def test_an_answer_is_shown_while_it_is_written_and_stands_there_once(
    args: list[str], daemon: Daemon, cli: Cli
) -> None:
    if args[0] == "logs":
        args = [*args, daemon.start()]
    main, follower = pty.openpty()
    env = cli.environment(TERM="xterm", COLUMNS="80", LINES="24")
    with subprocess.Popen(cli.argv(*args), stdout=follower, stderr=subprocess.DEVNULL, env=env):
        os.close(follower)
        until(lambda: daemon.call(lambda: daemon.operations.watchers) == 1)
        run = next(iter(daemon.operations.runs))
        daemon.call(daemon.operations.tell_delta, run, "The answer \x1b[2J is ")
        seen = read_until(main, "is ")
        assert "\\u{1b}" in seen
        daemon.call(daemon.operations.tell_delta, run, "forty-two")
        seen += read_until(main, "forty-two")
        daemon.append(run, turn("The answer is forty-two"), RunEnded(status="completed", reason="x", result="so"))
        seen += read_until(main, None)
    os.close(main)
    assert "\x1b[2J" not in seen
    stands = screen(seen)
    assert stands.count("forty-two") == 1
    assert "turn 1" in stands
    assert "\\u{1b}" not in stands


def read_until(fd: int, text: str | None) -> str:
    """Read a terminal until a text, or (None) until nobody writes to it any more."""
    seen = b""
    while text is None or text.encode() not in seen:
        try:
            read = os.read(fd, 4096)
        except OSError:
            break
        if not read:
            break
        seen += read
    return seen.decode()


def screen(written: str) -> str:
    """What stands on a terminal that understands moving up, going to the start of the line and erasing below."""
    import re

    lines, row = [""], 0
    for part in re.findall(r"\x1b\[[\d;]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", written):
        if part == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif part.endswith("A") and part.startswith("\x1b"):
            row -= int(part[2:-1])
        elif part == "\x1b[J":
            lines[row:] = [""]
        elif not part.startswith("\x1b") and part != "\r":
            lines[row] += part
    return "\n".join(lines)
