"""A human's word through crashes: the same question under the same id, no model asked, the answer carried out once.

K9: a question is journaled, what lists it is not written, or is something else. K10: an answer arrived and is not
journaled. K11: it is journaled, and the run was not entered.
"""

import json
import os
import random
import time
from pathlib import Path

import pytest

from tests.crash.asking import (
    CASES,
    EVERYTHING,
    KEY,
    Case,
    answer_to,
    answer_to_the_end,
    begin,
    journal_of,
    prepare,
    questions,
    reply,
    restart,
    start_run,
    until_asked,
)
from tests.crash.harness import LIFE_S, Home
from tests.crash.lives import recovers_to_the_same
from tests.crash.oracle import problems_with
from tests.crash.points import FIRST_LIFE, cases, steps
from tests.crash.question_oracle import question_problems
from tests.crash.scenario import effects, write_script

K10 = {"not written": "journal.write.before#1"}
K11 = {
    "written": "journal.write.after#1",
    "durable": "journal.flush.after#1",
    "run claimed": "journal.write.after#2",
    "run carried on": "journal.write.after#3",
}
SIDECARS = ["missing", "null", "stale", "empty", "foreign", "index missing"]
QUICK = ["checkpoint edited, then approved", "permission edited"]


def check(home: Home, case: Case, script: Path, *, interrupted: bool = False) -> None:
    """Compare a run that has ended with the world."""
    assert problems_with(home, {KEY: script}) == []
    journal = journal_of(home)
    assert question_problems(journal) == [], journal.story()
    if not interrupted:
        assert effects(home.path) == case.effects
    assert recovers_to_the_same(home)


def spoil(home: Home, how: str, stale: bytes) -> None:
    """Leave the list of open questions as a crash could have, or as nobody should."""
    (run_dir,) = home.run_dirs()
    sidecar = run_dir / "interactions.json"
    found = json.loads(sidecar.read_bytes())
    if how in ("missing", "index missing"):
        (sidecar if how == "missing" else run_dir / "meta.json").unlink()
    elif how == "foreign":  # a question that nobody asked
        found["interactions"] += [{**found["interactions"][0], "interaction_id": "q99"}]
        sidecar.write_text(json.dumps(found))
    else:
        empty = json.dumps({**found, "interactions": []}).encode()
        sidecar.write_bytes({"null": b"null", "stale": stale, "empty": empty}[how])


def spoilt(home: Home, name: str, how: str) -> None:
    case = CASES[name]
    script = begin(home, case)
    before = until_asked(home)
    (run_dir,) = home.run_dirs()
    stale = (run_dir / "interactions.json").read_bytes().replace(b'"q1"', b'"q0"').replace(b'"seq": ', b'"seq": 1')
    asked = len(journal_of(home).of("InferenceStarted"))
    home.daemon.kill()
    home.daemon.wait()
    spoil(home, how, stale)
    restart(home)
    assert until_asked(home) == before
    assert len(journal_of(home).of("InferenceStarted")) == asked
    answer_to_the_end(home, case)
    check(home, case, script)


def answered_and_killed(home: Home, name: str, fault: str) -> None:
    """Answer the first question, and kill the daemon at the fault; whoever answers again is told what counts."""
    case = CASES[name]
    script = begin(home, case)
    first = until_asked(home)[0]
    asked = len(journal_of(home).of("InferenceStarted"))
    restart(home, f"{fault}=kill")
    assert questions(home)[0] == first
    assert reply(home, first, case.answers[0]) in (None, 200)
    assert home.daemon.ends_within(LIFE_S), f"{fault} was not met"
    journaled = len(journal_of(home).of("InteractionAnswered"))
    assert journaled == (0 if fault in K10.values() else 1)
    carried_on = fault == K11["run carried on"]
    assert carried_on or len(journal_of(home).of("InferenceStarted")) == asked
    restart(home)
    if not journaled:
        assert until_asked(home)[0] == first
    assert reply(home, first, case.answers[0]) == 200
    assert reply(home, first, case.answers[0]) == 200
    assert reply(home, first, case.other) in (409, 400)
    assert first["id"] not in [question["id"] for question in questions(home)]
    answer_to_the_end(home, case)
    check(home, case, script, interrupted=carried_on)


@pytest.mark.parametrize("fault", {**K10, "durable": K11["durable"]}.values(), ids=[*K10, "durable"])
@pytest.mark.parametrize("name", QUICK)
def test_an_answer_that_met_a_crash(home: Home, name: str, fault: str) -> None:
    answered_and_killed(home, name, fault)


@pytest.mark.slow
@pytest.mark.parametrize("fault", (K10 | K11).values(), ids=K10 | K11)
@pytest.mark.parametrize("name", CASES)
def test_an_answer_of_any_kind_that_met_a_crash(home: Home, name: str, fault: str) -> None:
    answered_and_killed(home, name, fault)


@pytest.mark.parametrize("how", ["null", "foreign"])
def test_a_question_whose_list_is_spoilt_is_the_same_question(home: Home, how: str) -> None:
    spoilt(home, QUICK[0], how)


@pytest.mark.slow
@pytest.mark.parametrize("how", SIDECARS)
@pytest.mark.parametrize("name", CASES)
def test_a_question_of_any_kind_whose_list_is_spoilt_is_the_same_question(home: Home, name: str, how: str) -> None:
    spoilt(home, name, how)


# One run that asks everything, killed wherever it makes something durable

LIFE = {
    **steps("journal.write", "before", "after", hits=55),
    **steps("journal.flush", "before", "after", hits=36),
    **steps("journal.mend", "before", "after", hits=16),
    **steps("index", "write.after", "rename.before", "rename.after", hits=40),
    **steps("blob", "write.before", "write.after", "flush.after", "rename.before", "rename.unsynced", hits=2),
    **steps("blob", "rename.after", hits=2),
    **steps("run", "answered", hits=6),
    **steps("run", "call_ended", hits=5),
    **steps("call.make", "before", "after", hits=2),
    **steps("remove", "before", hits=10),
}
"""The points at which questions and answers become durable, and what comes between; `points.py` has all others."""


def live_until_killed(home: Home, fault: str, trace: Path | None = None) -> Path:
    prepare(home)
    script = write_script(home.path, EVERYTHING.turns)
    home.start(fault, trace=trace)
    if home.when_ready():
        start_run(home, EVERYTHING, script)
        answer_to_the_end(home, EVERYTHING)
    else:
        restart(home)
    start_run(home, EVERYTHING, script)  # what was not acknowledged is asked for again
    answer_to_the_end(home, EVERYTHING)
    return script


@pytest.mark.slow
@pytest.mark.parametrize("point", cases(LIFE))
def test_a_run_that_asks_everything_killed_at(home: Home, point: str) -> None:
    script = live_until_killed(home, f"{point}=kill")
    check(home, EVERYTHING, script, interrupted=True)


def test_a_run_that_asks_everything_comes_to_the_end(home: Home) -> None:
    script = live_until_killed(home, "", home.path / "trace")
    hits = {line.split()[1].partition("#")[0] for line in (home.path / "trace").read_text().splitlines()}
    assert hits <= set(LIFE) | set(FIRST_LIFE)
    check(home, EVERYTHING, script)
    assert [question["kind"] for question in journal_of(home).of("InteractionOpened")] == [
        *("checkpoint", "checkpoint", "ask", "ask", "ask", "ask", "review", "edit"),
        *("permission", "permission", "permission", "permission", "budget"),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_a_run_that_asks_everything_killed_at_random_moments(home: Home, seed: int) -> None:
    chosen = random.Random(f"{os.environ.get('ONWARD_SWEEP_SEED', '0')} {seed}")
    prepare(home)
    script = write_script(home.path, EVERYTHING.turns)
    home.start()
    assert home.when_ready()
    start_run(home, EVERYTHING, script)
    for _ in range(8):
        end = time.monotonic() + chosen.uniform(0.02, 0.5)
        while time.monotonic() < end:
            for question in questions(home):
                reply(home, question, answer_to(EVERYTHING, question))
        restart(home)
    answer_to_the_end(home, EVERYTHING)
    check(home, EVERYTHING, script, interrupted=True)


# Damage


@pytest.mark.parametrize("decision", ["go_on", "give_up"])
def test_the_decision_on_damage_is_asked_once_and_kept(home: Home, decision: str) -> None:
    case = CASES["text"]
    begin(home, case)
    home.daemon.kill()
    home.daemon.wait()
    (run_dir,) = home.run_dirs()
    journal = run_dir / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:-1]))  # the question itself is lost, and meta.json knows of it
    restart(home)
    asked = until_asked(home)
    for _ in range(2):
        restart(home)
        assert until_asked(home) == asked
    assert [question["kind"] for question in asked] == ["damage"]
    restart(home, "journal.flush.after#1=kill")
    assert reply(home, asked[0], {"decision": decision}) is None
    home.daemon.wait()
    restart(home)
    assert reply(home, asked[0], {"decision": decision}) == 200
    answer_to_the_end(home, case)
    found = journal_of(home)
    assert len(found.of("InteractionAnswered")) == 1
    assert [record["status"] for record in found.of("RunEnded")] == ["completed" if decision == "go_on" else "failed"]
