"""Known secrets are kept out of what is written, by value."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.core.conversation import Conversation, Turn
from onward.core.masking import KnownSecrets
from onward.core.records import problem_with
from tests.core import journals as j
from tests.core.journals import Json

VALUES = ["sk-abcdefghijkl", 'quo"ted\\value', "with\nnewline", "schlüssel-ä-ö", "a/b+c==d.e_f"]


def records() -> st.SearchStrategy[Json]:
    """Return one record of each kind that a secret is likely to stand in."""
    calls = j.batch(1, j.call("t1c1", arguments={"call_id": "call_id", "n": 12345678}))
    return st.sampled_from(
        [j.started(), j.claimed(), j.revived(), j.said("arguments"), j.inferring(), calls, j.handed_over("t1c1"),
         j.turn(1, j.use("t1c1", arguments="arguments"), seen=1), j.failed("2026-12-01T12:00:00Z"), j.done("t1c1"),
         j.answered("q1", {"value": 12345678}), j.parked(), j.ended(), j.draining("t1c1")]
    )  # fmt: skip


def known(*values: str) -> KnownSecrets:
    secrets = KnownSecrets()
    for value in values:
        secrets.add("KEY", value)
    return secrets


def masked(secrets: KnownSecrets, record: Json) -> Any:
    body = json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode()
    return json.loads(secrets.mask_record(body))


@pytest.mark.parametrize("value", VALUES)
def test_a_secret_is_masked_raw_and_in_json(value: str) -> None:
    """What is left is still valid JSON, and holds the value in no form."""
    assert masked(known(value), {"a": f"before {value} after"}) == {"a": "before [secret KEY] after"}
    assert known(value).mask_text(f"x{value}y") == "x[secret KEY]y"


PLACES: list[tuple[str, Json, Json]] = [
    ("a number of ours", {"active_s": 12345678, "usage": {"input_tokens": 12345678}}, {}),
    ("a part of a number", {"arguments": {"n": 9123456789, "x": 12345678.5}}, {}),
    ("a number that a model gave", {"arguments": {"pin": 12345678}}, {"arguments": {"pin": "[secret KEY]"}}),
    ("a nested one", {"content": [{"input": {"a": [12345678]}}]}, {"content": [{"input": {"a": ["[secret KEY]"]}}]}),
    ("a key that a model gave", {"arguments": {"12345678": 1}}, {"arguments": {"[secret KEY]": 1}}),
    ("an id of ours", {"call_id": "12345678", "idempotency_key": "12345678"}, {}),
    ("a time", {"retry_at": "12345678-01-01"}, {}),
    ("a text in JSON in a text", {"result": '{"n":12345678}'}, {"result": '{"n":[secret KEY]}'}),
]


@pytest.mark.parametrize(("record", "changed"), [row[1:] for row in PLACES], ids=[row[0] for row in PLACES])
def test_a_record_keeps_its_shape_where_a_secret_looks_like_a_number(record: Json, changed: Json) -> None:
    """A password of digits is masked in texts, and in what a model or a person gave; our own numbers stay numbers."""
    assert masked(known("12345678"), record) == record | changed


@given(value=st.text(min_size=8, max_size=12), record=records())
def test_whatever_the_secret_is_a_masked_record_can_be_folded(value: str, record: Json) -> None:
    secrets = known(value, "arguments", "AssistantTurn", "call_id", "end_turn", "tool_use", "ToolBatch", "2026-12-01")

    assert problem_with(masked(secrets, record)) is None
    assert masked(secrets, record)["type"] == record["type"]


def test_what_holds_no_secret_is_not_changed() -> None:
    body = b'{"a": 1.50}'

    assert known("12345678").mask_record(body) is body


def test_a_secret_inside_a_longer_one_does_not_uncover_it() -> None:
    """The longest value is masked first."""
    masked = known("secret-value", "secret-value-and-more").mask_text("secret-value-and-more")

    assert masked == "[secret KEY]"


def test_short_values_are_left_alone() -> None:
    """A value of a few letters stands in innocent text too."""
    assert known("abc").mask_text("abc") == "abc"


def test_variables_that_sound_secret_are_known() -> None:
    """The daemon's own environment is a source of secrets."""
    secrets = KnownSecrets()
    secrets.add_environment({"X_API_KEY": "12345678-a", "GITHUB_TOKEN": "12345678-b", "HOME": "/root/12345678"})

    assert secrets.mask_text("12345678-a 12345678-b /root/12345678") == (
        "[secret X_API_KEY] [secret GITHUB_TOKEN] /root/12345678"
    )


def sent(secrets: KnownSecrets | None, thinking: str) -> list[Json]:
    """Return the blocks that are sent of a turn that thought so; without secrets, of one in an old journal."""
    block = {"type": "thinking", "thinking": thinking, "signature": "s"}
    turn: Json = {"content": [block, {"type": "text", "text": "ok"}]}
    content = turn["content"] if secrets is None else masked(secrets, turn)["content"]
    talk = Conversation()
    talk.add_message(1, "do it")
    talk.add_turn(Turn(turn=1, seen=1, content=content, stop_reason="end_turn"))
    (answer,) = [message for message in talk.request() if message["role"] == "assistant"]
    return [part for part in answer["content"] if part["type"] == "thinking"]


def test_signed_thinking_that_held_a_secret_is_not_sent() -> None:
    """Its signature no longer fits what is stored."""
    assert sent(known("12345678"), "the key is 12345678") == []
    assert sent(known("12345678"), "12345678, not [secret KEY]") == []
    assert sent(None, "the key is [secret KEY]") == []


@pytest.mark.parametrize("secrets", [known(), known("12345678")])
def test_signed_thinking_that_only_speaks_of_a_masked_secret_is_sent_as_it_was(secrets: KnownSecrets) -> None:
    thought = "it says [secret KEY]"

    assert sent(secrets, thought) == [{"type": "thinking", "thinking": thought, "signature": "s"}]
