"""Identifiers: safe as one path component, never reused."""

import re
from typing import NewType

from onward.errors import BadRequest

RunId = NewType("RunId", str)
CallId = NewType("CallId", str)

MAX_TURN = 999_999_999

_RUN_ID = re.compile(r"[a-z0-9][a-z0-9-]{2,63}")
_CALL_ID = re.compile(r"t[1-9][0-9]{0,8}c[1-9][0-9]{0,4}")
_OWN_MESSAGES = ("answer-", "choose-", "revival-", "stage-")
_BASE32 = "0123456789abcdefghjkmnpqrstvwxyz"


def is_run_id(text: str) -> bool:
    """Say whether `text` is a run id, that is also safe as the name of a directory."""
    return _RUN_ID.fullmatch(text) is not None


def parse_run_id(text: str) -> RunId:
    """Return `text` as a run id.

    Raises:
        BadRequest: It is none.
    """
    if not is_run_id(text):
        raise BadRequest(f"{text[:80]!r} is not a run id: 3 to 64 of a-z, 0-9 and '-', not starting with '-'")
    return RunId(text)


def make_run_id(agent: str, time_ms: int, random_bits: int) -> RunId:
    """Return `<agent>-<id>`, whose second part sorts by time (48 bits of milliseconds, 40 random bits, base 32)."""
    number = (time_ms & (1 << 48) - 1) << 40 | random_bits & (1 << 40) - 1
    digits = "".join(_BASE32[number >> shift & 31] for shift in range(85, -1, -5))
    return parse_run_id(f"{agent[:32]}-{digits}")


def check_message_id(text: str) -> None:
    """Refuse the id of a message that a client says when it could be one of Onward's own.

    A run adds `answer-q4`, `stage-plan-1`, `choose-plan-1` and `revival-2` by itself, and each id only once.

    Raises:
        BadRequest: It could.
    """
    if text.startswith(_OWN_MESSAGES):
        begins = ", ".join(_OWN_MESSAGES)
        raise BadRequest(
            f"the message id {text[:80]!r} is not to be had: those that begin with {begins} are Onward's own"
        )


def make_call_id(turn: int, position: int) -> CallId:
    """Return Onward's own id of a call: unique in its run for ever. Both numbers count from 1."""
    return CallId(f"t{turn}c{position}")


def is_call_id(text: str) -> bool:
    """Say whether `text` is a call id, that is also safe as the name of a directory."""
    return _CALL_ID.fullmatch(text) is not None
