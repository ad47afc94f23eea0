"""Questions to a human: what counts as an answer to which, and what the model is told of it."""

from typing import Any

import pytest

from onward.core.interactions import DECISIONS, Interaction, Kind, as_text, checked, winner
from onward.errors import BadRequest
from tests.core.journals import TS, Json


def question(kind: str, ask: Json | None = None, **members: Any) -> Interaction:
    known: Json = {
        "interaction_id": "q1", "kind": kind, "prompt": "May I?", "options": [], "binds_to": {}, "ask": ask or {},
        "opened_seq": 5, "asked_at": TS,
    }  # fmt: skip
    return Interaction(**known | members)


FORM: Json = {
    "form": "form",
    "fields": [
        {"name": "title"},
        {"name": "count", "type": "number"},
        {"name": "sure", "type": "boolean"},
        {"name": "size", "type": "choice", "options": ["s", "m"]},
    ],
}
FILLED: Json = {"title": "x", "count": 1.5, "sure": False, "size": "m"}
CHOICE: Json = {"form": "choice", "options": ["a", "b"]}
MULTI: Json = {"form": "multi", "options": ["a", "b"]}

GOOD: list[tuple[str, Json, Json, Json]] = [
    (Kind.CHECKPOINT, {}, {"decision": "approve", "more": 1}, {"decision": "approve"}),
    (Kind.CHECKPOINT, {}, {"decision": "edit", "text": " new\x00"}, {"decision": "edit", "text": " new\ufffd"}),
    (Kind.CHECKPOINT, {}, {"decision": "reject"}, {"decision": "reject"}),
    (Kind.CHECKPOINT, {}, {"decision": "reject", "reason": "no"}, {"decision": "reject", "reason": "no"}),
    (Kind.REVIEW, {}, {"decision": "approve"}, {"decision": "approve"}),
    (Kind.REVIEW, {}, {"decision": "comment", "text": "hm"}, {"decision": "comment", "text": "hm"}),
    (Kind.PERMISSION, {}, {"decision": "approve", "always": False}, {"decision": "approve"}),
    (Kind.PERMISSION, {}, {"decision": "approve", "always": True}, {"decision": "approve", "always": True}),
    (Kind.PERMISSION, {}, {"decision": "approve", "arguments": {}}, {"decision": "approve", "arguments": {}}),
    (Kind.PERMISSION, {}, {"decision": "deny", "reason": "no", "arguments": {}}, {"decision": "deny", "reason": "no"}),
    (Kind.DAMAGE, {}, {"decision": "go_on"}, {"decision": "go_on"}),
    (Kind.RESTART, {}, {"decision": "stop"}, {"decision": "stop"}),
    (Kind.EDIT, {"text": "old"}, {"text": "new"}, {"text": "new"}),
    (Kind.BUDGET, {}, {"add": {"turns": 5}}, {"add": {"turns": 5}}),
    (Kind.ASK, {"form": "text"}, {"value": "words"}, {"value": "words"}),
    (Kind.ASK, CHOICE, {"value": "b"}, {"value": "b"}),
    (Kind.ASK, MULTI, {"value": ["b", "a"]}, {"value": ["b", "a"]}),
    (Kind.ASK, FORM, {"value": FILLED}, {"value": FILLED}),
]

BAD: list[tuple[str, Json, Any]] = [
    *((kind, {}, answer) for kind in DECISIONS for answer in ({}, {"decision": "yes"}, {"decision": ["approve"]})),
    *((kind, {}, {"decision": None}) for kind in DECISIONS),
    (Kind.CHECKPOINT, {}, []),
    (Kind.CHECKPOINT, {}, "approve"),
    (Kind.CHECKPOINT, {}, None),
    (Kind.CHECKPOINT, {}, {"decision": "edit"}),
    (Kind.CHECKPOINT, {}, {"decision": "edit", "text": " \n"}),
    (Kind.CHECKPOINT, {}, {"decision": "reject", "reason": 5}),
    (Kind.REVIEW, {}, {"decision": "comment"}),
    (Kind.REVIEW, {}, {"decision": "reject"}),
    (Kind.PERMISSION, {}, {"decision": "approve", "arguments": "rm x"}),
    (Kind.PERMISSION, {}, {"decision": "edit"}),
    (Kind.EDIT, {"text": "old"}, {}),
    (Kind.EDIT, {"text": "old"}, {"text": 5}),
    (Kind.BUDGET, {}, {}),
    (Kind.BUDGET, {}, {"add": {}}),
    (Kind.BUDGET, {}, {"decision": "approve"}),
    (Kind.ASK, {"form": "text"}, {}),
    (Kind.ASK, {"form": "text"}, {"value": ""}),
    (Kind.ASK, {"form": "text"}, {"value": ["x"]}),
    (Kind.ASK, CHOICE, {"value": "c"}),
    (Kind.ASK, CHOICE, {"value": ["a"]}),
    (Kind.ASK, CHOICE, {"value": {}}),
    (Kind.ASK, MULTI, {"value": []}),
    (Kind.ASK, MULTI, {"value": "a"}),
    (Kind.ASK, MULTI, {"value": ["a", "c"]}),
    (Kind.ASK, FORM, {"value": {}}),
    (Kind.ASK, FORM, {"value": "x"}),
    (Kind.ASK, FORM, {"value": {**FILLED, "other": 1}}),
    (Kind.ASK, FORM, {"value": {**FILLED, "count": "1"}}),
    (Kind.ASK, FORM, {"value": {**FILLED, "count": True}}),
    (Kind.ASK, FORM, {"value": {**FILLED, "sure": 1}}),
    (Kind.ASK, FORM, {"value": {**FILLED, "size": "xl"}}),
    ("x_future", {}, {"decision": "approve"}),
]


@pytest.mark.parametrize(("kind", "ask", "given", "journaled"), GOOD)
def test_an_answer_is_journaled_with_what_counts(kind: str, ask: Json, given: Json, journaled: Json) -> None:
    """Cleaned, and without what means nothing for this kind; said again it is the same answer."""
    asked = question(kind, ask)

    assert checked(asked, given) == journaled
    assert checked(asked, journaled) == journaled


@pytest.mark.parametrize(("kind", "ask", "given"), BAD)
def test_what_does_not_answer_the_question_is_refused(kind: str, ask: Json, given: Any) -> None:
    """Nothing is guessed: above all no yes."""
    with pytest.raises(BadRequest):
        checked(question(kind, ask), given)


@pytest.mark.parametrize(
    ("kind", "answer", "text"),
    [
        (Kind.EDIT, {"text": "new"}, "new"),
        (Kind.REVIEW, {"decision": "approve"}, "approved"),
        (Kind.REVIEW, {"decision": "comment", "text": "hm"}, "commented: hm"),
        (Kind.ASK, {"value": "words"}, "words"),
        (Kind.ASK, {"value": ["a", "b"]}, "a\nb"),
        (Kind.ASK, {"value": {"sure": False, "count": 2}}, "sure: False\ncount: 2"),
    ],
)
def test_the_model_is_told_the_answer(kind: str, answer: Json, text: str) -> None:
    """In words, as the result of its call."""
    assert as_text(question(kind, answer=answer)) == text


def test_a_question_is_open_until_it_is_answered_or_closed() -> None:
    """And only then; a decision is there where one was made."""
    assert question(Kind.ASK).is_open
    assert not question(Kind.ASK, answer={"value": "x"}).is_open
    assert not question(Kind.ASK, closed="it expired").is_open
    assert question(Kind.REVIEW, answer={"decision": "approve"}).decision == "approve"
    assert question(Kind.ASK, answer={"value": "x"}).decision is None


def test_the_loser_learns_who_won_in_a_form_that_is_safe_to_show() -> None:
    """Who answered, and what; control characters escaped."""
    said = winner(question(Kind.ASK, answer={"value": "\x1b[2K\u202e"}, answered_by="anna"))

    assert "by anna" in said
    assert "\x1b" not in said
    assert "\u202e" not in said
