"""The limits of a run: which one is reached, and the question to extend it. Pure."""

from typing import Any

from onward.core.interactions import Kind
from onward.core.records import InteractionOpened
from onward.core.state import RunState


def budget_reached(state: RunState, active_s: float) -> str | None:
    """Say which limit of the run is reached, or None. A limit that is absent does not limit."""
    used: dict[str, Any] = {
        "turns": state.turns,
        "tool_calls": state.totals.tool_calls,
        "active_s": active_s,
        "tokens": state.totals.tokens_in + state.totals.tokens_out,
        "cost_usd": state.totals.cost_usd,
    }
    for name, value in used.items():
        limit = state.limits.get(name)
        if limit is not None and value >= limit:
            return f"the limit {name} = {limit} is reached ({value:g} used)"
    return None


def budget_question(state: RunState, spent: str) -> InteractionOpened | None:
    """Return the question to open, unless one is open already."""
    if any(question.kind == Kind.BUDGET for question in state.open_questions):
        return None
    return InteractionOpened(
        interaction_id=f"q{len(state.interactions) + 1}",
        kind=Kind.BUDGET,
        prompt=f"{spent.capitalize()}. Extend it?",
        options=[],
        binds_to={"limit": spent},
        ask={"limits": state.limits},
    )
