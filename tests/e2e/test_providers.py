"""The shipped worker fixes a bug in a git repository through each API, undisturbed and through crashes."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.instances import Instance
from tests.fake_server.answers import Answer, call, in_turn, text, thinking
from tests.fake_server.server import KEY, FakeServer, serving

Json = dict[str, Any]

MODELS = {"anthropic": "anthropic/claude-sonnet-5-5", "openai": "openai/gpt-6-sol"}
BUG = "def mean(values):\n    return sum(values) / len(values) + 1\n"
FIXED = "def mean(values):\n    return sum(values) / len(values)\n"
COMMIT = "git commit -qam 'Fix the mean' && git log --oneline -1"
LOOK = "git log --oneline; git status --short; cat mean.py"
TASK = "mean.py returns one too much. Fix it, check it and commit."

both = pytest.mark.parametrize("kind", list(MODELS))

# Turn and number of events; a fault point and its hit.
STREAMS = [(kind, *place) for place in ((3, 6), (0, 3), (1, 5)) for kind in MODELS]
POINTS = [
    (kind, point)
    for point in (
        "run.call_ended#5",
        "run.answered#4",
        "run.answered#2",
        "run.call_ended#1",
        "tools.write.after_rename#1",
    )
    for kind in MODELS
]


def some_slow(every: int, *cases: tuple[Any, ...]) -> list[Any]:
    """Mark all but every n-th case as slow."""
    return [case if at % every == 0 else pytest.param(*case, marks=pytest.mark.slow) for at, case in enumerate(cases)]


class CarefulModel:
    """Looks, edits, checks, commits; after an interruption it finds out first. `disturb` changes a turn's answer."""

    def __init__(self) -> None:
        self.disturb: dict[int, Callable[[Answer], Answer]] = {}

    def __call__(self, turns: int, body: Json) -> Answer:
        answer = self.think(*last_exchange(body))
        change = self.disturb.pop(turns, None)
        return change(answer) if change else answer

    def think(self, asked: list[tuple[str, Json]], results: str) -> Answer:
        is_anthropic = "hm-signature"
        if not asked:
            return answer(call("read_file", {"path": "mean.py"}), call("list_files"), thought=is_anthropic)
        if "[error] interrupted" in results or "[error] not started" in results:
            return answer(call("shell", {"command": LOOK}))
        name, arguments = asked[-1]
        command = arguments.get("command", "")
        if "Fix the mean" in results:
            return answer(call("finish", {"result": "The mean is right and committed."}))
        if name == "edit_file" or (command == LOOK and FIXED in results):
            return answer(call("shell", {"command": "python3 -c 'import mean; assert mean.mean([1, 3]) == 2'"}))
        if command.startswith("python3"):
            return answer(call("shell", {"command": COMMIT}))
        return answer(call("edit_file", {"path": "mean.py", "old": "len(values) + 1", "new": "len(values)"}))


def answer(*calls: Json, thought: str | None = None) -> Answer:
    thoughts = [thinking("Let me see.\n", thought)] if thought else []
    return Answer(blocks=[*thoughts, text("I go on."), *calls])


def last_exchange(body: Json) -> tuple[list[tuple[str, Json]], str]:
    """Return the newest calls and the text of what answers them, whichever API the body is of."""
    asked: list[tuple[str, Json]] = []
    results: list[str] = []
    for message in body["messages"]:
        if message["role"] == "assistant":
            asked, results = list(calls_in(message)), []
        elif message["role"] == "tool":
            results.append(message["content"])
        elif isinstance(message["content"], list):
            results += [str(block.get("content", "")) for block in message["content"]]
    return asked, "\n".join(results)


def calls_in(message: Json) -> Iterator[tuple[str, Json]]:
    for known in message.get("tool_calls") or ():
        yield known["function"]["name"], json.loads(known["function"]["arguments"])
    for block in message["content"] if isinstance(message["content"], list) else ():
        if block["type"] == "tool_use":
            yield block["name"], block["input"]


@pytest.fixture
def model() -> CarefulModel:
    return CarefulModel()


@pytest.fixture
def fake(model: CarefulModel) -> Iterator[FakeServer]:
    with serving(model) as server:
        yield server


@pytest.fixture
def worker(make: Callable[..., Instance], fake: FakeServer) -> Instance:
    """An instance with both keys, and a repository with a bug."""
    addresses = {"ANTHROPIC_BASE_URL": fake.url, "OPENAI_BASE_URL": fake.openai_url}
    instance = make(env={"ANTHROPIC_API_KEY": KEY, "OPENAI_API_KEY": KEY, **addresses})
    (instance.workspace / "mean.py").write_text(BUG)
    (instance.workspace / ".gitignore").write_text("__pycache__\n")
    for command in ("init -q", "config user.email a@example.org", "config user.name A", "add .", "commit -qm Begin"):
        git(instance.workspace, *command.split())
    return instance


def git(workspace: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(workspace), *arguments], capture_output=True, text=True, check=True)
    return done.stdout


def start(instance: Instance, kind: str) -> str:
    started = instance.ask_for(MODELS[kind], task=TASK)
    assert started.status in (200, 201), started
    return str(started.body["run_id"])


def check_done(instance: Instance, fake: FakeServer, run_id: str) -> Json:
    """The bug is fixed and committed once, every request was one that a strict provider takes, no key is anywhere."""
    shown = instance.until_status(run_id, "completed", "failed", "parked", "quarantined", timeout_s=60)
    assert shown["status"] == "completed", (shown.get("reason"), fake.problems)
    assert git(instance.workspace, "log", "--format=%s").split("\n")[:-1] == ["Fix the mean", "Begin"]
    assert git(instance.workspace, "status", "--short") == ""
    assert (instance.workspace / "mean.py").read_text() == FIXED
    assert fake.problems == []
    assert [path for path in instance.home.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()] == []
    return shown


@both
def test_the_worker_fixes_a_bug_and_commits(kind: str, worker: Instance, fake: FakeServer) -> None:
    run_id = start(worker.start(), kind)
    shown = check_done(worker, fake, run_id)
    assert shown["result"] == "The mean is right and committed."
    assert shown["totals"]["cost_usd"] > 0
    turns = worker.records(run_id, "AssistantTurn")
    assert {f"{turn['provider']}/{turn['model']}" for turn in turns} == {MODELS[kind]}
    assert len(fake.requests) == len(turns) == 5


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "turn", "events"), some_slow(6, *STREAMS))
def test_killed_in_the_middle_of_a_stream(
    kind: str, turn: int, events: int, worker: Instance, fake: FakeServer, model: CarefulModel
) -> None:
    """Half an answer is nothing: the turn is asked for again, and nothing of it was done."""
    model.disturb[turn] = lambda whole: replace(whole, stall_after=events)
    run_id = start(worker.start(), kind)
    assert fake.stalled.wait(30)
    worker.kill()
    fake.go_on.set()
    worker.start()
    check_done(worker, fake, run_id)
    assert len(worker.records(run_id, "RunRevived")) == 1


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "point"), some_slow(9, *POINTS))
def test_killed_in_the_middle_of_a_batch(kind: str, point: str, worker: Instance, fake: FakeServer) -> None:
    """An answer that was not journaled, calls that are done and not journaled: found out, not done again."""
    run_id = start(worker.start(ONWARD_FAULT=f"{point}=kill"), kind)
    assert worker.daemon is not None
    assert worker.daemon.wait(30) == -9
    worker.start()
    check_done(worker, fake, run_id)


@pytest.mark.slow
def test_a_key_that_is_gone_parks_the_run_until_it_is_back(
    worker: Instance, fake: FakeServer, model: CarefulModel
) -> None:
    model.disturb[1] = lambda whole: replace(whole, stall_after=2)
    run_id = start(worker.start(), "anthropic")
    assert fake.stalled.wait(30)
    worker.kill()
    fake.go_on.set()
    worker.start(ANTHROPIC_API_KEY="")
    parked = worker.until_status(run_id, "parked")
    assert parked["needs"] == "key"
    assert "ANTHROPIC_API_KEY" in json.dumps(worker.records(run_id, "InferenceFailed")[-1])
    worker.kill()
    worker.start()
    assert worker.post(f"/v1/runs/{run_id}/resume", {}).status == 200
    check_done(worker, fake, run_id)


def test_a_wrong_key_that_the_server_echoes_stands_nowhere(worker: Instance, fake: FakeServer) -> None:
    wrong = "sk-wrong-55b1e0"
    run_id = start(worker.start(ANTHROPIC_API_KEY=wrong), "anthropic")
    assert worker.until_status(run_id, "parked")["needs"] == "key"
    worker.kill()
    failed = worker.records(run_id, "InferenceFailed")[-1]
    assert "invalid x-api-key: [key]" in failed["message"]
    found = [path for path in worker.home.rglob("*") if path.is_file() and wrong.encode() in path.read_bytes()]
    assert found == []


@pytest.mark.slow
def test_without_a_name_the_journal_says_which_model_was_taken(worker: Instance, fake: FakeServer) -> None:
    started = worker.start(OPENAI_API_KEY="").post("/v1/runs", {"task": TASK, "workspace": str(worker.workspace)})
    run_id = started.body["run_id"]
    check_done(worker, fake, run_id)
    assert worker.records(run_id, "RunStarted")[0]["model"] == MODELS["anthropic"]


def test_with_nothing_configured_the_answer_says_what_would_do(instance: Instance) -> None:
    refused = instance.start().post("/v1/runs", {"task": TASK, "workspace": str(instance.workspace)})
    assert refused.status == 422
    assert "no model can be used yet. What would do:\n" in refused.body["detail"]


SWEEP = 240  # more than an undisturbed run passes, so that each of them has its turn


@pytest.mark.slow
@both
@pytest.mark.parametrize("share", range(SWEEP))
def test_killed_anywhere(
    kind: str, share: int, make: Callable[..., Instance], worker: Instance, fake: FakeServer, tmp_path: Path
) -> None:
    """One of the fault points that an undisturbed run passes, chosen by its place among them."""
    trace = tmp_path / "trace"
    first = start(worker.start(ONWARD_FAULT_TRACE=str(trace)), kind)
    check_done(worker, fake, first)
    passed = [line.split()[1] for line in trace.read_text().splitlines()]
    worker.kill()
    git(worker.workspace, "reset", "-q", "--hard", "HEAD~1")
    point = passed[share * len(passed) // SWEEP]
    worker.daemon = worker.launch(ONWARD_FAULT=f"{point}=kill")
    started = None
    while worker.daemon.poll() is None and started is None:
        try:
            started = worker.ask_for(MODELS[kind], key="sweep", task=TASK)
        except OSError:
            os.sched_yield()
    with suppress(subprocess.TimeoutExpired):
        worker.daemon.wait(20)
    worker.kill()  # a point that only a first start or another second passes: then it dies at its rest
    worker.start()
    run_id = str(worker.ask_for(MODELS[kind], key="sweep", task=TASK).body["run_id"])
    check_done(worker, fake, run_id)


def test_the_careful_model_repeats_itself_for_the_same_conversation() -> None:
    """What the tests above rest on: asked again after a crash, it says the same again."""
    body = {"messages": [{"role": "user", "content": TASK}]}
    first, again = CarefulModel()(0, body), in_turn(CarefulModel()(0, body))(0, body)
    assert [block.get("input") for block in first.blocks] == [block.get("input") for block in again.blocks]
