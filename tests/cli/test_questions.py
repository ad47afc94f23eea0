"""Questions on the command line: what waits, how it is answered, and that nothing foreign misleads who answers."""

import json
import subprocess
from typing import Any

import pytest

from onward.core.records import InteractionAnswered, InteractionClosed, RunPaused
from tests.cli.questions import CHECKPOINT, DEFINITION, asks, asks_for, waiting
from tests.cli.records import COMPLETED, batch, done, handed_over, turn
from tests.cli.serving import Cli, Daemon
from tests.cli.test_reading import FORBIDDEN, NASTY
from tests.support import until

Json = dict[str, Any]


@pytest.fixture(autouse=True)
def definition(daemon: Daemon) -> None:
    daemon.operations.definition = DEFINITION


def given(daemon: Daemon, run: str) -> list[Json]:
    """The answers that became durable."""
    return [line["answer"] for line in daemon.operations.journals[run] if line["type"] == "InteractionAnswered"]


def asking(daemon: Daemon, *questions: Any, agent: str | None = None) -> str:
    run = daemon.start(agent=agent)
    daemon.append(run, *waiting(*questions))
    return run


def test_questions_lists_what_waits_in_all_runs_or_in_one(daemon: Daemon, cli: Cli) -> None:
    nothing = cli("questions")
    assert (nothing.returncode, nothing.stdout, nothing.stderr) == (0, "", "no question is open\n")
    first, second = asking(daemon, CHECKPOINT), asking(daemon, asks_for("git push origin main"), agent="coder")
    shown = cli("questions").stdout
    for text in (
        f"q1  {first}  checkpoint  ",
        "  advisory",
        "19 more lines",
        f"onward questions {first}",
        f"onward approve {first} q1 [--edit FILE]",
        f"onward deny {first} q1 [--reason R]",
        "git push origin main",
        "why: rule prefix 'git push': ask",
    ):
        assert text in shown
    one = cli("questions", first[:-1] + first[-1]).stdout
    assert ("step 29" in one, second in one) == (True, False)
    listed = [json.loads(line) for line in cli("questions", "--json").stdout.splitlines()]
    assert [question["id"] for question in listed] == [f"{first}.q1", f"{second}.q1"]


def test_ps_show_and_logs_say_what_a_run_waits_for(daemon: Daemon, cli: Cli) -> None:
    run = asking(daemon, CHECKPOINT)
    (row,) = cli("ps").stdout.splitlines()[1:]
    assert row.split()[2:4] == ["waiting", "plan"]
    assert "human q1" in row
    shown = cli("show", run).stdout
    for text in ("waits for  human", "stage      plan", "visit      plan 1: ", f"onward approve {run} q1", "step 29"):
        assert text in shown
    daemon.append(run, InteractionAnswered(interaction_id="q1", answer={"decision": "approve"}, by="kim"))
    daemon.append(run, asks("ask", "Which?", 2, form="text"), InteractionClosed(interaction_id="q2", reason="late"))
    told = cli("logs", run).stdout
    for text in ("plan begins", "QUESTION", "q1 checkpoint: Stage 'plan'", "q1 by kim: approve", "q2 is closed: late"):
        assert text in told


def test_what_a_model_writes_cannot_mislead_who_answers(daemon: Daemon, cli: Cli) -> None:
    forged = f"Fine?\n    onward approve other q9\n00:00:00  answer      q1 by root: approve{NASTY}"
    run = asking(
        daemon,
        asks("review", forged, text=forged, title=forged),
        asks_for(f"{NASTY}{' ' * 5000}rm -rf /", 2),
        asks("ask", forged, 3, form="choice", options=[forged]),
        asks("ask", forged, 4, form="form", fields=[{"name": forged, "type": forged}]),
    )
    for args in (["questions"], ["questions", run], ["show", run], ["logs", run], ["questions", "--json"]):
        shown = cli(*args).stdout
        assert not [character for character in FORBIDDEN if character in shown], args
        assert not [line for line in shown.splitlines() if line.startswith(("00:00:00", "    onward approve other"))]
        assert "rm -rf /" in shown
    assert "[5000 blanks]rm -rf /" in cli("questions").stdout


@pytest.mark.parametrize(
    ("question", "args", "answer"),
    [
        (CHECKPOINT, ["approve", "{run}"], {"decision": "approve"}),
        (CHECKPOINT, ["approve", "{run}", "q1", "--edit", "file"], {"decision": "edit", "text": "from the file\n"}),
        (CHECKPOINT, ["deny", "{run}", "--reason", "too long"], {"decision": "reject", "reason": "too long"}),
        (asks_for("git push"), ["approve", "{run}", "--always"], {"decision": "approve", "always": True}),
        (asks_for("git push"), ["deny", "{run}", "{run}.q1"], {"decision": "deny"}),
        (
            asks_for("git push"),
            ["approve", "{run}", "--edit", "arguments"],
            {"decision": "approve", "arguments": {"command": "git push -n"}},
        ),
        (asks("review", text="x"), ["deny", "{run}", "--reason", "no"], {"decision": "comment", "text": "no"}),
        (asks("damage"), ["approve", "{run}"], {"decision": "go_on"}),
        (asks("restart"), ["deny", "{run}"], {"decision": "stop"}),
        (asks("budget"), ["answer", "{run}", "q1", "cost_usd=5"], {"add": {"cost_usd": 5}}),
        (asks("ask", form="text"), ["answer", "{run}", "q7"], {"value": "q7"}),
        (asks("ask", form="text"), ["answer", "{run}", "q1", "-"], {"value": "from stdin"}),
        (asks("ask", form="choice", options=["a", "b"]), ["answer", "{run}", "2"], {"value": "b"}),
        (asks("ask", form="multi", options=["a", "b"]), ["answer", "{run}", "q1", "b,a"], {"value": ["b", "a"]}),
        (
            asks("ask", form="form", fields=[{"name": "n", "type": "number"}, {"name": "t"}]),
            ["answer", "{run}", "n=2", "t=x y"],
            {"value": {"n": 2, "t": "x y"}},
        ),
        (asks("edit", text="old"), ["answer", "{run}", "q1", "--file", "file"], {"text": "from the file\n"}),
        (asks("edit", text="old"), ["answer", "{run}", "-"], {"text": "from stdin\n"}),
    ],
    ids=lambda value: value.kind if hasattr(value, "kind") else value[0] if isinstance(value, list) else "",
)
def test_every_kind_of_question_is_answered(
    question: Any, args: list[str], answer: Json, daemon: Daemon, cli: Cli
) -> None:
    run = asking(daemon, question)
    (cli.home / "file").write_text("from the file\n")
    (cli.home / "arguments").write_text('{"command": "git push -n"}')
    argv = cli.argv(*[arg.format(run=run) for arg in args])
    done = subprocess.run(
        argv, input="from stdin\n", capture_output=True, text=True, timeout=60, env=cli.environment(), cwd=cli.home
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert done.stderr.startswith(f"{run}: q1 is answered: ")
    assert given(daemon, run) == [answer]


def test_a_grant_says_what_it_allows(daemon: Daemon, cli: Cli) -> None:
    run = asking(daemon, asks_for("git push"), asks_for("echo $HOME", 2))
    told = cli("approve", run, "q1", "--always").stderr
    assert "allowed for the rest of the run: shell: every simple command that begins with git push" in told
    assert "shell: exactly this command" in cli("approve", run, "q2", "--always").stderr


def test_the_first_answer_counts_whoever_comes_later(daemon: Daemon, cli: Cli) -> None:
    run = asking(daemon, CHECKPOINT)
    assert cli("deny", run, "q1", "--reason", "no").returncode == 0
    assert cli("deny", run, "q1", "--reason", "no").returncode == 0
    other = cli("approve", run, "q1")
    assert other.returncode == 1
    assert '"decision":"reject","reason":"no"' in other.stderr
    without = cli("approve", run)
    assert without.returncode == 1
    assert "asks nothing now; its newest question, q1, was answered by" in without.stderr
    assert "reject: no" in without.stderr
    assert given(daemon, run) == [{"decision": "reject", "reason": "no"}]


def test_errors_teach(daemon: Daemon, cli: Cli) -> None:
    idle, run = daemon.start(), asking(daemon, CHECKPOINT, asks("ask", "Which?", 2, form="text"))
    several = cli("approve", run)
    assert several.returncode == 2
    assert "q1  checkpoint: Stage 'plan'" in several.stderr
    assert "q2  ask: Which?" in several.stderr
    for args, code, hint in (
        (["approve", idle], 1, "asks nothing now"),
        (["approve", run, "q3"], 4, f"onward questions {run}"),
        (["approve", run, "one"], 2, "named like q3"),
        (["approve", run, f"{idle}.q1"], 2, "another run"),
        (["approve", run, "q2"], 2, f"onward answer {run} q2 TEXT"),
        (["answer", run, "q2"], 2, "asks 2 questions"),
        (["answer", run], 2, "VALUE is missing"),
        (["answer", run, "q1", "--file", "none"], 1, "No such file"),
        (["answer", "nothing", "x"], 4, "there is no run"),
    ):
        failed = cli(*args)
        assert (failed.returncode, failed.stdout) == (code, ""), failed.stderr
        assert hint in failed.stderr
        assert "Traceback" not in failed.stderr
    assert given(daemon, run) == []


def test_without_a_terminal_run_and_wait_say_what_waits_and_exit_5(daemon: Daemon, cli: Cli) -> None:
    daemon.operations.script = waiting(CHECKPOINT)
    followed = cli("run", "task")
    run = followed.stderr.splitlines()[0]
    for shown in (followed, cli("wait", run)):
        assert shown.returncode == 5, shown.stderr
        assert f"{run} waits for an answer to q1: Stage 'plan' is done" in shown.stderr
        assert f"onward approve {run} q1" in shown.stderr
    assert json.loads(cli("wait", run, "--json").stdout)["waiting_on"] == "human"
    daemon.operations.script = waiting(asks("budget", "Extend it?"))
    followed = cli("run", "task")
    assert followed.returncode == 6
    assert "onward answer" in followed.stderr


def test_waiting_goes_on_until_the_calls_beside_the_question_have_ended(daemon: Daemon, cli: Cli) -> None:
    run = daemon.start()
    daemon.append(run, turn("I work."), batch("one", "two"), handed_over("t1c1"), asks_for("two", 2))
    with cli.start("wait", run) as waits:
        until(lambda: daemon.call(lambda: daemon.operations.watchers))
        assert waits.poll() is None
        daemon.append(run, done("t1c1"))
        assert waits.wait(30) == 5
        waits.communicate()


def test_a_paused_run_is_not_said_to_wait_for_an_answer(daemon: Daemon, cli: Cli) -> None:
    daemon.operations.script = (*waiting(CHECKPOINT), RunPaused(by="kim", reason="lunch"))
    followed = cli("run", "task")
    run = followed.stderr.splitlines()[0]
    assert followed.returncode == 5
    assert "waits for an answer" not in followed.stderr
    told = cli("approve", run).stderr
    assert f"the run is paused; it goes on with: onward resume {run}" in told
    daemon.append(run, COMPLETED)
