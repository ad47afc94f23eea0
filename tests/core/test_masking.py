"""Known secrets are kept out of what is written, by value."""

import json

import pytest

from onward.core.conversation import Conversation, Turn
from onward.core.masking import KnownSecrets

VALUES = ["sk-abcdefghijkl", 'quo"ted\\value', "with\nnewline", "schlüssel-ä-ö", "a/b+c==d.e_f"]


def known(*values: str) -> KnownSecrets:
    secrets = KnownSecrets()
    for value in values:
        secrets.add("KEY", value)
    return secrets


@pytest.mark.parametrize("value", VALUES)
def test_a_secret_is_masked_raw_and_in_json(value: str) -> None:
    """What is left is still valid JSON, and holds the value in no form."""
    body = json.dumps({"a": f"before {value} after"}, ensure_ascii=False, separators=(",", ":")).encode()

    assert json.loads(known(value).mask(body)) == {"a": "before [secret KEY] after"}
    assert known(value).mask_text(f"x{value}y") == "x[secret KEY]y"


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


def test_signed_thinking_that_held_a_secret_is_not_sent() -> None:
    """Its signature no longer fits what is stored."""
    block = {"type": "thinking", "thinking": "the key is [secret KEY]", "signature": "s"}
    talk = Conversation()
    talk.add_message(1, "do it")
    talk.add_turn(Turn(turn=1, seen=1, content=[block, {"type": "text", "text": "ok"}], stop_reason="end_turn"))

    assert "thinking" not in str(talk.request())
