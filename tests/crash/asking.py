"""Runs that ask, and somebody who answers them; whoever is asked is there again after every crash."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.crash.harness import LIFE_S, TERMINAL, Home, index_is_written
from tests.crash.journals import Journal, read_journal
from tests.crash.scenario import bump, call, turn, write_script
from tests.support import until

Json = dict[str, Any]

AGENT = """
model = "scripted/none"
sandbox = "none"
tools = ["shell", "write_file", "list_files", "ask_user", "present_for_review", "edit_document", "finish"]
[permissions]
shell = "ask"
write_file = "ask"
[limits]
call_deadline_s = 60
max_stalled_revivals = 1000000
"""
STAGES = """
[[stages]]
name = "plan"
prompt = "Plan it."
checkpoint = ["approve", "sign"]
next = ["build"]
[[stages]]
name = "build"
"""
KEY = "asked"


def asks(**arguments: object) -> Json:
    return call("ask_user", **arguments)


FINISH = turn("Done.", call("finish", result="all of it"))
PLAN = turn("The plan.")
ASK = turn("", asks(question="Which?"))
CHOOSE = turn("", asks(question="Which?", kind="choice", options=["a", "b"]))
CHOOSE_SOME = turn("", asks(question="Which?", kind="multi", options=["a", "b"]))
FILL_IN = turn("", asks(question="Which?", kind="form", options=[{"name": "n", "type": "number"}]))
REVIEW = turn("", call("present_for_review", title="Report", text="All is well."))
EDIT = turn("", call("edit_document", title="Report", text="All is well."))
LOOK = turn("", call("list_files", path="."))
ACT = turn("", bump("asked"))
WRITE_TWICE = [turn("", call("write_file", path=f"{n}.txt", content=n)) for n in ("one", "two")]
SLOW = turn("", delay_s=600)
EDITED = {"command": "echo edited >> ../effects; echo done"}

YES: Json = {"decision": "approve"}
ANSWERS: dict[str, Json] = {
    "checkpoint": YES,
    "ask": {"value": "because"},
    "review": YES,
    "edit": {"text": "All is better."},
    "permission": YES,
    "budget": {"add": {"turns": 10}},
    "damage": {"decision": "go_on"},
    "restart": {"decision": "resume"},
}
"""What is answered where a test says nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A run that asks something. `answers` go to its questions in order, `by_subject` to whatever is about that.

    `other` would answer the first one too.
    """

    turns: list[Json]
    answers: list[Json] = field(default_factory=list)
    by_subject: dict[str, Json] = field(default_factory=dict)
    other: Json = field(default_factory=lambda: {"decision": "deny"})
    stages: bool = False
    limits: Json = field(default_factory=dict)
    on_restart: str = "resume"
    effects: list[str] = field(default_factory=list)
    """What has happened in the end, where nothing was interrupted."""


REJECT: Json = {"decision": "reject", "reason": "no"}
BETTER: Json = {"decision": "edit", "text": "A better plan."}
CASES: dict[str, Case] = {
    "checkpoint approved twice": Case(turns=[PLAN, FINISH], answers=[YES, YES], other=REJECT, stages=True),
    "checkpoint edited, then approved": Case(turns=[PLAN, FINISH], answers=[BETTER, YES], other=YES, stages=True),
    "checkpoint rejected": Case(turns=[PLAN, PLAN, FINISH], answers=[REJECT], other=YES, stages=True),
    "checkpoint approved, then rejected": Case(
        turns=[PLAN, PLAN, FINISH], answers=[YES, REJECT], other=REJECT, stages=True
    ),
    "text": Case(turns=[ASK, FINISH], answers=[{"value": "so"}], other={"value": "otherwise"}),
    "choice": Case(turns=[CHOOSE, FINISH], answers=[{"value": "a"}], other={"value": "b"}),
    "multi": Case(turns=[CHOOSE_SOME, FINISH], answers=[{"value": ["a", "b"]}], other={"value": ["a"]}),
    "form": Case(turns=[FILL_IN, FINISH], answers=[{"value": {"n": 1}}], other={"value": {"n": 2}}),
    "review": Case(turns=[REVIEW, FINISH], answers=[{"decision": "comment", "text": "hm"}], other=YES),
    "document": Case(turns=[EDIT, FINISH], answers=[{"text": "x" * 70_000}], other={"text": "y"}),
    "permission approved": Case(turns=[ACT, FINISH], answers=[YES], effects=["asked"]),
    "permission denied": Case(turns=[ACT, FINISH], answers=[{"decision": "deny", "reason": "no"}], other=YES),
    "permission edited": Case(
        turns=[ACT, FINISH], answers=[{**YES, "arguments": EDITED}], other=YES, effects=["edited"]
    ),
    "permission always": Case(turns=[*WRITE_TWICE, FINISH], answers=[{**YES, "always": True}], other=YES),
    "budget": Case(
        turns=[LOOK, FINISH], answers=[{"add": {"turns": 5}}], other={"add": {"turns": 6}}, limits={"turns": 1}
    ),
    "restart": Case(turns=[FINISH], answers=[{"decision": "resume"}], other={"decision": "stop"}, on_restart="ask"),
}


EVERYTHING = Case(
    turns=[
        PLAN,
        turn("", *(item["calls"][0] for item in (ASK, CHOOSE, CHOOSE_SOME, FILL_IN, REVIEW, EDIT))),
        turn("", bump("first"), bump("denied"), bump("original")),
        *WRITE_TWICE,
        FINISH,
    ],
    by_subject={
        "checkpoint 0": BETTER,
        "checkpoint 1": YES,
        "ask text": {"value": "so"},
        "ask choice": {"value": "b"},
        "ask multi": {"value": ["a"]},
        "ask form": {"value": {"n": 2.5}},
        "review": {"decision": "comment", "text": "hm"},
        "edit": {"text": "x" * 70_000},
        f"permission {bump('denied')['arguments']['command']}": {"decision": "deny"},
        f"permission {bump('original')['arguments']['command']}": {**YES, "arguments": EDITED},
        "permission one.txt": {**YES, "always": True},
    },
    stages=True,
    limits={"turns": 5},
    effects=["first", "edited"],
)


def prepare(home: Home) -> None:
    agents = home.path / "config" / "agents"
    (agents / "asking.toml").write_text(AGENT)
    (agents / "staged.toml").write_text(AGENT + STAGES)


def begin(home: Home, case: Case) -> Path:
    """Start a daemon and the run of a case, and let it come to its first question; returns its script."""
    prepare(home)
    script = write_script(home.path, [SLOW] if case.on_restart == "ask" else case.turns)
    home.start()
    assert home.when_ready()
    start_run(home, case, script)
    if case.on_restart == "ask":
        until(lambda: journal_of(home).of("InferenceStarted"))
        home.daemon.kill()
        home.daemon.wait()
        write_script(home.path, case.turns)
        home.start()
    until_asked(home)
    return script


def start_run(home: Home, case: Case, script: Path) -> None:
    body = {
        "task": "ask", "workspace": str(home.workspace), "model": f"scripted/{script}", "limits": case.limits,
        "agent": "staged" if case.stages else "asking", "on_restart": case.on_restart,
    }  # fmt: skip
    home.request("POST", "/v1/runs", body, KEY)


def questions(home: Home) -> list[Json]:
    """The questions that are open; none when nobody answers."""
    told = home.request("GET", "/v1/interactions") or {"interactions": []}
    return list(told["interactions"])


def until_asked(home: Home) -> list[Json]:
    """Wait until the run waits for a human and its index says so; returns the questions."""

    def asked() -> list[Json]:
        rests = all(run.get("waiting_on") == "human" or run["status"] == "parked" for run in home.listed().values())
        return questions(home) if rests and all(map(index_is_written, home.run_dirs())) else []

    found: list[Json] = told_of(home, asked)
    return found


def told_of(home: Home, condition: Any) -> Any:
    try:
        return until(condition, LIFE_S)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{home.told()}") from None


def reply(home: Home, question: Json, answer: Json) -> int | None:
    """Answer a question; returns the status, None when the daemon died."""
    told = home.ask("POST", f"/v1/interactions/{question['id']}/answer", {"answer": answer})
    return told[0] if told else None


def restart(home: Home, fault: str = "") -> None:
    """Let another daemon take over."""
    home.daemon.kill()
    home.daemon.wait()
    home.start(fault)
    home.when_ready()


def answer_to_the_end(home: Home, case: Case) -> None:
    """Answer whatever is asked until the run has ended; a daemon that died is followed by another."""

    def over() -> bool:
        if not home.daemon.is_alive():
            restart(home)
        for question in questions(home):
            reply(home, question, answer_to(case, question))
        runs = home.listed().values()
        return bool(runs) and all(run["status"] in TERMINAL for run in runs) and index_is_written(*home.run_dirs())

    told_of(home, over)


def answer_to(case: Case, question: Json) -> Json:
    """Return what a case says to a question: by what it is about, or by its number; else the usual."""
    if (known := case.by_subject.get(subject_of(question))) is not None:
        return known
    number = int(question["interaction_id"][1:]) - 1
    return case.answers[number] if number < len(case.answers) else ANSWERS[question["kind"]]


def subject_of(question: Json) -> str:
    """Return what a question is about: its kind, and the point, the form, or what would be done."""
    ask = question["ask"]
    arguments = ask.get("arguments", {})
    about = question["binds_to"].get("point", ask.get("form", arguments.get("path", arguments.get("command", ""))))
    return f"{question['kind']} {about}".strip()


def journal_of(home: Home) -> Journal:
    (run_dir,) = home.run_dirs()
    return read_journal(run_dir)
