"""Questions with a real daemon, a stage definition of one's own, the scripted model and real SIGKILL."""

import json
from typing import Any

import pytest

from tests.cli.serving import Cli
from tests.cli.terminals import at_terminal
from tests.e2e.instances import Instance, Json, asked, shell

AGENT = """
kind = "native"
sandbox = "none"
tools = ["shell", "read_file", "ask_user"]

[permissions]
shell = "ask"

[[stages]]
name = "plan"
prompt = "Plan."
tools = ["read_file", "ask_user"]
checkpoint = "approve"
next = ["build"]

[[stages]]
name = "build"
prompt = "Build."
"""
PLAN: Json = {"text": "I shall write a file."}
BUILD = shell("echo built >> built")
DONE: Json = {"text": "It is built."}


@pytest.fixture
def planner(instance: Instance) -> Instance:
    agents = instance.home / "config" / "agents"
    agents.mkdir(parents=True, mode=0o700)
    (instance.home / "config").chmod(0o700)
    (agents / "planner.toml").write_text(AGENT)
    (agents / "planner.toml").chmod(0o600)
    return instance.start()


@pytest.fixture
def cli(planner: Instance) -> Cli:
    return Cli(planner.home, planner.home / "onward.sock")


def until_asked(instance: Instance, run_id: str, which: str) -> Json:
    """Wait until a question is open; returns it."""
    found: list[Json] = []

    def is_open() -> bool:
        open_now = instance.get(f"/v1/interactions?run_id={run_id}").body["interactions"]
        found[:] = [question for question in open_now if question["interaction_id"] == which]
        return bool(found)

    instance.until(is_open)
    instance.until(lambda: instance.show(run_id)["waiting_on"] == "human")
    return found[0]


def test_a_question_survives_kill_9_and_the_answers_lead_to_the_end(planner: Instance, cli: Cli) -> None:
    run_id = planner.run(PLAN, BUILD, DONE, agent="planner")
    before = until_asked(planner, run_id, "q1")
    for _ in range(2):
        planner.kill()
        planner.start()
        assert until_asked(planner, run_id, "q1") == before
    assert asked(planner, run_id) == 1
    assert before["ask"]["result"] == "I shall write a file."
    assert f"q1  {run_id}  checkpoint" in cli("questions").stdout
    assert cli("wait", run_id).returncode == 5
    assert "human q1" in cli("ps").stdout

    approved = cli("approve", run_id)
    assert approved.returncode == 0, approved.stderr
    permission = until_asked(planner, run_id, "q2")
    assert (permission["kind"], permission["advisory"]) == ("permission", True)
    planner.kill()
    planner.start()
    assert until_asked(planner, run_id, "q2") == permission
    assert asked(planner, run_id) == 2
    assert not (planner.workspace / "built").exists()
    assert "echo built >> built" in cli("questions", run_id).stdout

    assert cli("approve", run_id, "q2").returncode == 0
    assert cli("wait", run_id, "--timeout", "60").returncode == 0
    assert (planner.workspace / "built").read_text() == "built\n"
    assert [record["stage"] for record in planner.records(run_id, "StageEntered")] == ["plan", "build"]
    assert asked(planner, run_id) == 3
    told = cli("logs", run_id).stdout
    for text in ("QUESTION", "plan begins", "build begins", "q1 by", "It is built."):
        assert text in told


def test_a_message_at_a_checkpoint_is_heard_at_once_and_what_comes_of_it_is_asked_about_again(
    planner: Instance, cli: Cli
) -> None:
    """Nothing had died: the run is not revived, and is told nothing but the message."""
    run_id = planner.run(PLAN, {"text": "I shall write two."}, BUILD, DONE, agent="planner")
    until_asked(planner, run_id, "q1")
    assert "it hears it with its next request" in cli("send", run_id, "Write two.").stderr
    assert until_asked(planner, run_id, "q2")["ask"]["result"] == "I shall write two."
    assert cli("approve", run_id).returncode == 0
    until_asked(planner, run_id, "q3")  # of the call: what is said now waits for its answer
    assert "it waits for an answer to its question, and hears it after that" in cli("send", run_id, "Now.").stderr
    assert cli("approve", run_id, "q3").returncode == 0
    assert cli("wait", run_id, "--timeout", "60").returncode == 0
    assert planner.records(run_id, "RunRevived") == []
    said = [record["content"] for record in planner.records(run_id, "MessageAdded")]
    assert said == ["Plan.", "Write two.", "Build.", "Now."]


@pytest.mark.slow
@pytest.mark.parametrize("killed", [False, True], ids=["at once", "after kill -9"])
def test_of_two_answers_at_the_same_instant_one_wins_and_the_other_is_told(
    killed: bool, planner: Instance, cli: Cli
) -> None:
    run_id = planner.run(PLAN, BUILD, DONE, agent="planner")
    until_asked(planner, run_id, "q1")
    if killed:
        planner.kill()
        planner.start()
    args: dict[str, list[str]] = {
        "approve": ["approve", run_id, "q1"],
        "reject": ["deny", run_id, "q1", "--reason", "no"],
    }
    both = {decision: cli.start(*words) for decision, words in args.items()}
    told = {decision: process.communicate(timeout=60)[1] for decision, process in both.items()}
    codes = {decision: process.returncode for decision, process in both.items()}
    (record,) = planner.records(run_id, "InteractionAnswered")
    winner = record["answer"]["decision"]
    loser = "reject" if winner == "approve" else "approve"
    assert codes == {winner: 0, loser: 1}, told
    assert f'"decision":"{winner}"' in told[loser]
    again = cli(*args[winner])  # who did not hear the success asks again, after a crash too
    planner.kill()
    planner.start()
    assert [again.returncode, cli(*args[winner]).returncode, cli(*args[loser]).returncode] == [0, 0, 1]
    assert len([r for r in planner.records(run_id, "InteractionAnswered") if r["interaction_id"] == "q1"]) == 1


def test_a_denied_call_never_runs_and_an_edited_one_runs_as_edited(planner: Instance, cli: Cli) -> None:
    run_id = planner.run(PLAN, shell("touch first"), shell("touch second"), DONE, agent="planner")
    until_asked(planner, run_id, "q1")
    (planner.home / "plan").write_text("A better plan.\n")
    assert cli("approve", run_id, "--edit", "plan").returncode == 0
    until_asked(planner, run_id, "q2")
    assert cli("deny", run_id, "--reason", "not this").returncode == 0
    until_asked(planner, run_id, "q3")
    (planner.home / "arguments").write_text(json.dumps({"command": "touch third"}))
    assert cli("approve", run_id, "--edit", "arguments").returncode == 0
    assert cli("wait", run_id, "--timeout", "60").returncode == 0
    assert sorted(path.name for path in planner.workspace.iterdir()) == ["third"]
    first, second = planner.records(run_id, "ToolCallDone")
    assert (first["outcome"], second["outcome"]) == ("denied", "ok")
    assert "not this" in first["result"]
    assert "A better plan." in json.dumps(planner.records(run_id, "MessageAdded"))


def asks_user(**arguments: Any) -> Json:
    return {"calls": [{"name": "ask_user", "arguments": arguments}]}


@pytest.mark.parametrize(
    ("arguments", "values", "result"),
    [
        ({"question": "Which colour?"}, ["deep blue"], "deep blue"),
        ({"question": "Which?", "kind": "choice", "options": ["red", "blue"]}, ["2"], "blue"),
        ({"question": "Which?", "kind": "multi", "options": ["red", "blue"]}, ["q1", "red,2"], "red\nblue"),
        (
            {"question": "Fill in", "kind": "form", "options": [{"name": "n", "type": "number"}, {"name": "t"}]},
            ["n=2", "t=x y"],
            "n: 2\nt: x y",
        ),
    ],
    ids=["text", "choice", "multi", "form"],
)
def test_what_a_human_answers_is_what_the_model_is_told(
    arguments: Json, values: list[str], result: str, planner: Instance, cli: Cli
) -> None:
    run_id = planner.run(asks_user(**arguments), PLAN, agent="planner")
    until_asked(planner, run_id, "q1")
    answered = cli("answer", run_id, *values)
    assert answered.returncode == 0, answered.stderr
    until_asked(planner, run_id, "q2")
    (done,) = planner.records(run_id, "ToolCallDone")
    assert (done["result"], done["settled_by"]) == (result, "human")


def test_a_spent_budget_asks_also_after_a_restart_and_is_extended_by_the_answer(planner: Instance, cli: Cli) -> None:
    run_id = planner.run(shell("echo 1"), {"text": "done"}, limits={"turns": 1})
    planner.until_status(run_id, "parked")
    planner.kill()
    planner.start()
    assert f"onward answer {run_id} q1 LIMIT=MORE" in cli("questions").stdout
    assert cli("wait", run_id).returncode == 6
    assert cli("answer", run_id, "cost_usd=5").returncode == 1  # it has no such limit
    assert cli("answer", run_id, "turns=5").returncode == 0
    assert cli("wait", run_id, "--timeout", "60").returncode == 0
    assert planner.show(run_id)["limits"]["turns"] == 6


def test_run_without_a_terminal_stops_at_the_question_and_says_how_to_answer(planner: Instance, cli: Cli) -> None:
    model = planner.script(PLAN, DONE)
    followed = cli("run", "-a", "planner", "--model", model, "-w", str(planner.workspace), "build it")
    run_id = followed.stderr.splitlines()[0]
    assert followed.returncode == 5, followed.stderr
    assert f"{run_id} waits for an answer to q1" in followed.stderr
    assert f"onward approve {run_id} q1" in followed.stderr


def test_a_cancelled_run_asks_nothing_and_takes_no_answer(planner: Instance, cli: Cli) -> None:
    run_id = planner.run(PLAN, agent="planner")
    until_asked(planner, run_id, "q1")
    assert cli("cancel", run_id).returncode == 0
    planner.until_status(run_id, "cancelled")
    assert cli("questions").stdout == ""
    late = cli("approve", run_id, "q1")
    assert late.returncode == 1
    assert "is over" in late.stderr


def test_who_follows_at_a_terminal_answers_in_place_to_the_end(planner: Instance, cli: Cli) -> None:
    model = planner.script(PLAN, BUILD, DONE)
    terminal = at_terminal(cli, "run", "-a", "planner", "--model", model, "-w", str(planner.workspace), "build it")
    try:
        assert "I shall write a file." in terminal.reply("[r] reject", "a")
        terminal.until("q1 is answered: approve")
        assert "echo built >> built" in terminal.reply("[always]", "always")
        terminal.until("allowed for the rest of the run: shell: ")
        assert terminal.ended() == 0
        assert "It is built." in terminal.seen
    finally:
        terminal.close()
    assert (planner.workspace / "built").read_text() == "built\n"
