"""What a person types becomes the answer that a question wants, or an error that says what would."""

from typing import Any

import pytest

from onward.cli.asked import asked, escaped, in_words
from onward.cli.values import answer_of, approval, denial
from onward.errors import BadRequest

Json = dict[str, Any]

FIELDS = [
    {"name": "city"},
    {"name": "count", "type": "number"},
    {"name": "fast", "type": "boolean"},
    {"name": "colour", "type": "choice", "options": ["red", "blue"]},
]


def question(kind: str, form: str | None = None, **ask: Any) -> Json:
    given = {"form": form, **ask} if form else ask
    return {"run_id": "worker-1", "interaction_id": "q1", "kind": kind, "prompt": "What?", "ask": given}


@pytest.mark.parametrize(
    ("asked", "words", "value"),
    [
        (question("ask", "text"), ["  as is  "], "  as is  "),
        (question("ask", "choice", options=["red", "2"]), ["2"], "2"),
        (question("ask", "choice", options=["red", "blue"]), ["2"], "blue"),
        (question("ask", "choice", options=["red", "blue"]), [" red "], "red"),
        (question("ask", "multi", options=["red", "blue", "a,b"]), ["blue, 1"], ["blue", "red"]),
        (question("ask", "multi", options=["red", "a,b"]), ["a,b"], ["a,b"]),
        (question("ask", "multi", options=["red", "a,b"]), ['["a,b","red"]'], ["a,b", "red"]),
        (
            question("ask", "form", fields=FIELDS),
            ["city=New York = NY", "count=2", "fast=no", "colour=2"],
            {"city": "New York = NY", "count": 2, "fast": False, "colour": "blue"},
        ),
        (question("ask", "form", fields=FIELDS), ['{"city": "x"}'], {"city": "x"}),
    ],
)
def test_a_value_is_read_as_the_question_wants_it(asked: Json, words: list[str], value: Any) -> None:
    assert answer_of(asked, words) == {"value": value}


def test_other_kinds_are_answered_by_value_too() -> None:
    assert answer_of(question("budget"), ["cost_usd=2.5", "turns=10"]) == {"add": {"cost_usd": 2.5, "turns": 10}}
    assert answer_of(question("edit"), ["new\n"]) == {"text": "new\n"}
    assert answer_of(question("checkpoint"), ["approve"]) == {"decision": "approve"}
    assert answer_of(question("restart"), ["stop"]) == {"decision": "stop"}


@pytest.mark.parametrize(
    ("asked", "words", "hint"),
    [
        (question("ask", "text"), ["two", "words"], "quotes"),
        (question("ask", "choice", options=["red", "blue"]), ["3"], "1 red, 2 blue"),
        (question("ask", "choice", options=["red", "blue"]), ["0"], "1 red, 2 blue"),
        (question("ask", "multi", options=["red"]), ["red,green"], "'green'"),
        (question("ask", "form", fields=FIELDS), ["city=x", "size=2"], "no such field: size; missing: count"),
        (question("ask", "form", fields=FIELDS), ["red"], "NAME=VALUE"),
        (
            question("ask", "form", fields=FIELDS),
            ["city=x", "count=many", "fast=no", "colour=red"],
            "'count' is a number",
        ),
        (question("ask", "form", fields=FIELDS), ["{"], "JSON"),
        (question("budget"), ["cost_usd=nan"], "is a number"),
        (question("budget"), ["5"], "NAME=VALUE"),
        (question("permission"), ["yes"], "approve, deny"),
        (question("checkpoint"), ["edit"], "--edit FILE"),
    ],
)
def test_what_is_no_answer_says_what_would_be(asked: Json, words: list[str], hint: str) -> None:
    with pytest.raises(BadRequest, match=hint.replace("(", r"\(")):
        answer_of(asked, words)


def test_approving_means_what_the_kind_of_question_makes_of_it() -> None:
    approved = {kind: approval(question(kind)) for kind in ("checkpoint", "review", "permission", "damage", "restart")}
    assert [answer["decision"] for answer in approved.values()] == ["approve", "approve", "approve", "go_on", "resume"]
    assert approval(question("checkpoint"), edit="new plan") == {"decision": "edit", "text": "new plan"}
    edited = approval(question("permission"), edit='{"command": "ls"}', always=True)
    assert edited == {"decision": "approve", "arguments": {"command": "ls"}, "always": True}


def test_denying_means_what_the_kind_of_question_makes_of_it() -> None:
    denied = {kind: denial(question(kind), None) for kind in ("checkpoint", "permission", "damage", "restart")}
    assert [answer["decision"] for answer in denied.values()] == ["reject", "deny", "give_up", "stop"]
    assert denial(question("review"), "too long") == {"decision": "comment", "text": "too long"}
    assert denial(question("permission"), "never") == {"decision": "deny", "reason": "never"}


@pytest.mark.parametrize(
    ("act", "hint"),
    [
        (lambda: approval(question("ask", "text")), "onward answer worker-1 q1 TEXT"),
        (lambda: approval(question("budget")), "onward answer worker-1 q1 LIMIT=MORE"),
        (lambda: approval(question("review"), edit="x"), "--edit is for"),
        (lambda: approval(question("checkpoint"), always=True), "--always is for"),
        (lambda: approval(question("permission"), edit="[1]"), "JSON object"),
        (lambda: approval(question("permission"), edit="rm"), "not JSON"),
        (lambda: denial(question("review"), None), "--reason"),
        (lambda: denial(question("restart"), "because"), "no --reason"),
        (lambda: denial(question("edit"), None), "onward answer worker-1 q1 --file FILE"),
    ],
)
def test_what_cannot_be_approved_or_denied_so_says_how_it_is(act: Any, hint: str) -> None:
    with pytest.raises(BadRequest, match=hint):
        act()


def test_what_will_run_is_shown_whole_and_no_padding_hides_any_of_it() -> None:
    command = f"ls\x1b[2K\r\u202e\u200b\U000e0100{' ' * 5000}&& rm -rf x{chr(10) * 300}&& echo {'y' * 9000} END"
    shown = "\n".join(asked(question("permission", tool="shell", arguments={"command": command}, why="rule")))
    assert not [character for character in "\x1b\r\u202e\u200b\U000e0100" if character in shown]
    for part in ("\\u{1b}[2K\\u{d}", "\\u{202e}\\u{200b}\\u{e0100}", "[5000 blanks]&& rm -rf x", "y" * 9000, "END"):
        assert part in shown
    assert "[299 blank lines]" in shown
    assert len(shown.split("\n")) < 10
    assert all(line.startswith("    ") for line in shown.split("\n"))


def test_a_few_blanks_and_lines_stay_as_they_are() -> None:
    assert escaped("a    b\n\n\nc\n    d") == "a    b\n\n\nc\n    d"


def test_answers_are_told_in_words() -> None:
    assert in_words({"decision": "reject", "reason": "no"}) == "reject: no"
    assert in_words({"decision": "approve", "always": True}) == "approve, always"
    assert in_words({"value": ["a", "b"]}) == "a, b"
    assert in_words({"add": {"turns": 5}}) == "turns=5"
    assert in_words({"value": False}) == "False"
    assert in_words({"text": "a text"}) == "a text"
