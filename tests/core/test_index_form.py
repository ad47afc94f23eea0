"""meta.json and interactions.json repeat what the journal says: believed only where all that uses them can."""

from typing import Any

import orjson
import pytest

from onward.cli.asked import asked, how_to_answer
from onward.cli.runs import _facts, _row, _show_parts
from onward.core.index import index_of, questions_of
from onward.core.index_form import are_questions, is_index
from onward.core.interactions import Interaction
from onward.core.outbox import delivery_id_of, notification_of
from onward.core.state import RunState
from onward.core.times import seconds_between

RUN = "coder-1"
WRONG: list[Any] = ["x", 5, 1.5, True, None, [], {}, [5], [{}], [[]], {"x": []}]
PLACE = {"seq": 2, "bytes": 12, "checkpoint_offset": None}


def spoiled(value: Any) -> list[Any]:
    """Return copies of a JSON value, in each of which one member, however deep inside, is of another kind."""
    others = [other for other in WRONG if type(other) is not type(value)]
    if isinstance(value, dict):
        return others + [{**value, name: bad} for name in value for bad in spoiled(value[name])]
    if isinstance(value, list):
        return others + [[*value[:at], bad, *value[at + 1 :]] for at in range(len(value)) for bad in spoiled(value[at])]
    return others


def index() -> dict[str, Any]:
    written: dict[str, Any] = orjson.loads(orjson.dumps({**index_of(RunState(run_id=RUN)), "journal": PLACE}))
    return written


def questions(kind: str, ask: dict[str, Any]) -> list[dict[str, Any]]:
    state = RunState(run_id=RUN)
    state.interactions["q1"] = Interaction(
        interaction_id="q1", kind=kind, prompt="?", options=["a"], binds_to={}, ask=ask, opened_seq=1, asked_at="t"
    )
    return questions_of(state)


def test_an_index_is_not_believed_where_a_member_is_of_another_kind() -> None:
    """What is believed can be listed, shown and sorted, and a daemon can begin with it."""
    assert is_index(index(), RUN)
    assert not is_index(index(), "coder-2")
    assert not is_index({**index(), "status": "no such status"}, RUN)
    for bad in spoiled(index()):
        if is_index(bad, RUN):
            _row(bad, [])
            _facts(bad)
            seconds_between(bad["wake_at"] or "", bad["created_at"])
            assert type(bad["journal"]["seq"]) is int
            assert {"x": []} not in bad.values()


@pytest.mark.parametrize("name", list(index()))
def test_an_index_without_one_of_its_members_is_not_believed_unless_there_is_nothing_to_say(name: str) -> None:
    """Nobody who uses a believed index needs to ask whether something is there."""
    whole = index()
    less = {known: value for known, value in whole.items() if known != name}

    assert is_index(less, RUN) == (whole[name] is None or name == "suspect")  # older versions did not write that one


@pytest.mark.parametrize(
    ("kind", "ask"),
    [
        ("ask", {"form": "text"}),
        ("ask", {"form": "multi", "options": ["a", "b"]}),
        ("ask", {"form": "form", "fields": [{"name": "n"}, {"name": "t", "type": "choice", "options": ["a"]}]}),
        ("permission", {"tool": "shell", "arguments": {"command": "x"}, "why": "a rule"}),
        ("checkpoint", {"result": "a plan"}),
        ("edit", {"text": "a text"}),
        ("budget", {"limits": {"turns": 1}}),
    ],
)
def test_questions_are_not_believed_where_a_member_is_of_another_kind(kind: str, ask: dict[str, Any]) -> None:
    """What is believed can be shown, sorted and told."""
    assert are_questions(questions(kind, ask), RUN)
    assert not are_questions(questions(kind, ask), "coder-2")
    for bad in spoiled(questions(kind, ask)):
        if are_questions(bad, RUN):
            for question in bad:
                list(asked(question))
                how_to_answer(question)
                notification_of(question)
                assert delivery_id_of(question) == f"{RUN}.{question['interaction_id']}"
            sorted(bad, key=lambda question: (question["asked_at"], question["run_id"]))
            _show_parts({"questions": bad})
