"""Turns that bring nothing: refused, cut by their length, or the same failing calls over and over. Pure.

Asking again at once would only cost.
"""

from collections.abc import Sequence
from typing import Any

from onward.core.conversation import CallState, Turn

PATIENCE = 3
"""So many cut turns in a row, or one refusal, and the run waits for a person."""
ROUNDS = 8
"""So many turns in a row that ask for the same calls, though all of them fail each time."""
_FAILED = frozenset({"error", "timeout", "denied"})


def fruitless_after(before: int, stop_reason: str, content: list[dict[str, Any]]) -> int:
    """Return how many turns in a row brought nothing, the newest included.

    Args:
        before: How many there were before it.
        stop_reason: Of the newest turn.
        content: Its blocks. A whole call in it can be carried out, so that it brought something.
    """
    calls = [block for block in content if block.get("type") == "tool_use"]
    whole = any(isinstance(block.get("input"), dict) for block in calls)
    if whole or stop_reason == "end_turn" or (calls and stop_reason == "tool_use"):
        return 0
    return PATIENCE if stop_reason == "refusal" else before + 1


def asks_again(before: Turn | None, content: list[dict[str, Any]]) -> bool:
    """Whether a turn asks for just those calls that the turn before it asked for in vain.

    Calls that an interruption kept from being carried out are asked for again with good reason.
    """
    if before is None or not all_failed(before.calls):
        return False
    asked = [(block.get("name"), block.get("input")) for block in content if block.get("type") == "tool_use"]
    return asked == [(call.name, call.arguments) for call in before.calls]


def all_failed(calls: Sequence[CallState]) -> bool:
    return bool(calls) and all(call.outcome in _FAILED for call in calls)


def going_round(repeated: int, calls: Sequence[CallState]) -> str | None:
    """Say that a model does the same thing over and over, or None; `repeated` turns asked again what failed before."""
    if repeated + 1 < ROUNDS or not all_failed(calls):
        return None
    names = ", ".join(dict.fromkeys(call.name for call in calls))
    why = f"the model asked {repeated + 1} times in a row for the same calls ({names}), which failed each time"
    return f"{why}. Say something to it, then resume the run"


def given_up(fruitless: int, stop_reason: str) -> str | None:
    """Say why the model is not asked again by itself, or None."""
    if fruitless < PATIENCE:
        return None
    if stop_reason == "refusal":
        return "the model, or a filter before it, refuses to go on. Say something else to it, then resume the run"
    why = f"{fruitless} answers in a row were cut before they brought anything"
    return f"{why}. Ask for shorter ones or raise max_output_tokens, then resume the run"
