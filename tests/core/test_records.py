"""Records: what a line of each type must have before it is folded."""

from dataclasses import MISSING, fields
from typing import Any

import pytest

from onward.core.records import (
    RECORD_TYPES,
    Call,
    MessageAdded,
    RunEnded,
    RunParked,
    RunRevived,
    ToolBatch,
    ToolCallDone,
    problem_with,
)
from onward.core.status import Status
from onward.core.vocabulary import Cause, Effect, Needs, Outcome, SettledBy, Source
from tests.core import journals as j

WHOLE: list[j.Json] = [
    j.started(),
    j.claimed(),
    j.revived(),
    j.said("hello"),
    j.inferring(),
    j.failed(),
    j.turn(1, j.text("x"), seen=1),
    j.batch(1, "t1c1"),
    j.handed_over("t1c1"),
    j.done("t1c1"),
    j.entered("plan"),
    j.left("plan"),
    j.opened("q1", "checkpoint", {"stage": "plan", "visit": 1, "point": 0}),
    j.answered("q1", {"decision": "approve"}),
    j.closed("q1"),
    {"type": "Checkpoint", "state": {}, "fold": 1},
    {"type": "SettingsChanged", "by": "anna", "limits": {}},
    {"type": "CancelRequested", "by": "anna"},
    j.control("RunPaused"),
    j.control("RunResumed"),
    j.parked(),
    j.control("RunQuarantined"),
    j.draining(),
    j.ended(),
]
OF_DESIGN = [record["type"] for record in WHOLE]

MUST_HAVE = [
    (record, name)
    for record in WHOLE
    for name in record
    if name
    not in (
        "type",
        "schema",
        "model" if record["type"] == "RunStarted" else "type",
        "role",
        "fold",
        "in_flight",
        "by" if record["type"] == "RunEnded" else "type",
    )
    and not (record["type"] == "DaemonDraining" and name == "active_s")
]


def other_type(value: Any) -> list[Any]:
    """Return values of every other JSON type; an integer is a number too."""
    kinds: list[Any] = [None, True, "text", 1, 1.5, [], {}]
    same = (int, float) if type(value) is float else (type(value),)
    return [kind for kind in kinds if type(kind) not in same]


@pytest.mark.parametrize("record", WHOLE, ids=OF_DESIGN)
def test_a_whole_record_has_no_problem(record: j.Json) -> None:
    """The members that the design lists are enough."""
    assert problem_with({"seq": 1, **record}) is None


@pytest.mark.parametrize(("record", "name"), MUST_HAVE, ids=[f"{r['type']}.{n}" for r, n in MUST_HAVE])
def test_a_missing_or_ill_typed_member_is_named(record: j.Json, name: str) -> None:
    """A record that lacks a member, or has it with another JSON type, is not folded, and the member is named."""
    lacking = {key: value for key, value in record.items() if key != name}
    wrong = [lacking, *({**record, name: value} for value in other_type(record[name]))]

    assert [name in (problem_with(item) or "") for item in wrong] == [True] * len(wrong)


@pytest.mark.parametrize(
    ("record", "name", "value"),
    [
        (j.started(), "schema", "1"),
        (j.started(), "depth", None),
        (j.started(), "model", 5),
        (j.said("x"), "role", None),
        (j.failed(), "retry_at", 5),
        (j.done("t1c1"), "ends_run", True),
        (j.done("t1c1"), "evidence", "x"),
        (j.handed_over("t1c1"), "arguments", "x"),
        (j.done("t1c1"), "moves_to", {}),
        (j.left("plan"), "result", 5),
        (j.left("plan"), "to", ["build"]),
        (j.opened("q1", "ask", {}), "expires_at", 5),
        ({"type": "SettingsChanged", "by": "anna", "limits": {}}, "grants", {}),
        (j.draining(), "in_flight", "x"),
        (j.ended(), "result", 5),
    ],
)
def test_a_member_that_may_be_absent_has_its_type_when_it_is_there(record: j.Json, name: str, value: Any) -> None:
    """What is optional is checked too."""
    assert name in (problem_with({**record, name: value}) or "")


def test_an_unknown_type_has_no_problem() -> None:
    """Nothing is asked of a type that a newer version wrote."""
    assert problem_with({"seq": 1, "type": "GrantRevoked"}) is None


def test_every_known_type_is_covered_here() -> None:
    """A new record type comes with its rows in this module."""
    assert set(RECORD_TYPES) <= set(OF_DESIGN)


@pytest.mark.parametrize("name", sorted(RECORD_TYPES))
def test_every_type_that_is_written_says_so_first(name: str) -> None:
    """The type stands first, then the members; None is left out."""
    cls = RECORD_TYPES[name]
    values: dict[str, Any] = {f.name: None for f in fields(cls) if f.default is MISSING}
    line = cls(**values).to_json()

    assert next(iter(line.items())) == ("type", name)
    assert None not in line.values()


def test_words_are_plain_text_as_they_are_read_back() -> None:
    """A live run applies what it wrote, a replay what it reads: enumerations are plain text in both."""
    written = [
        RunRevived(attempt=1, cause=Cause.CRASH, charged=True),
        RunEnded(status=Status.FAILED, reason="x"),
        MessageAdded(message_id="m", source=Source.REVIVAL, content="x", by="daemon"),
        RunParked(by="daemon", reason="x", needs=Needs.DISK),
        ToolBatch(turn=1, calls=[CALL.to_json()]),
        ToolCallDone(
            call_id="t1c1", outcome=Outcome.OK, result="x", is_error=False, settled_by=SettledBy.TOOL, duration_s=1.0
        ),
    ]

    for record in written:
        line = record.to_json()
        assert problem_with(line) is None
        assert {type(value) for value in line.values()} <= {str, int, float, bool, list}
    assert RunEnded(status=Status.FAILED, reason="x").to_json() == {
        "type": "RunEnded", "status": "failed", "reason": "x", "by": "daemon",
    }  # fmt: skip
    assert type(CALL.to_json()["effect"]) is str


CALL = Call(call_id="t1c1", provider_id="a", name="shell", arguments={}, effect=Effect.WRITE)
