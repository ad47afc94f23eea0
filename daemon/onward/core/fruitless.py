"""Turns that bring nothing: refused, or cut by their length. Asking again at once would only cost. Pure."""

from typing import Any

PATIENCE = 3
"""So many cut turns in a row, or one refusal, and the run waits for a person."""


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


def given_up(fruitless: int, stop_reason: str) -> str | None:
    """Say why the model is not asked again by itself, or None."""
    if fruitless < PATIENCE:
        return None
    if stop_reason == "refusal":
        return "the model, or a filter before it, refuses to go on. Say something else to it, then resume the run"
    why = f"{fruitless} answers in a row were cut before they brought anything"
    return f"{why}. Ask for shorter ones or raise max_output_tokens, then resume the run"
