"""The limits of a run: which one is reached, and the question to extend it. Pure."""

from collections.abc import Mapping
from typing import Any

from onward.core.conversation import CallState
from onward.core.interactions import Kind
from onward.core.records import InteractionOpened
from onward.core.state import RunState

MAX_CALLS = 128
"""Calls of one turn that are carried out; a turn that asks for more has gone astray."""


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


def unpriced(limits: Mapping[str, Any], model: str, estimate: Mapping[str, float]) -> str | None:
    """Say why a model may not be asked under a limit of cost: nobody knows what it costs. None: it may."""
    limit = limits.get("cost_usd")
    if limit is None or not estimate or "cost_usd" in estimate:
        return None
    remedy = (
        f'say it in onward.toml, [prices."{model}"], input = 0.0 and output = 0.0 if it is free, then resume the run'
    )
    return f"the limit cost_usd = {limit} cannot be kept, for the price of {model} is not known: {remedy}"


def over_limit(state: RunState, calls: list[CallState], used: int) -> dict[str, str]:
    """Return the calls of a batch that are too many, each with the limit that it would break. They never start.

    Args:
        state: The run's limits.
        calls: The batch, in model order.
        used: The tool calls of the run so far, those of this batch included that are not known to be too many.
    """
    waiting = [call for call in calls if call.outcome is None and not call.started]
    places = {call.call_id for call in calls[:MAX_CALLS]}
    over = {call.call_id: f"a turn has at most {MAX_CALLS} calls" for call in waiting if call.call_id not in places}
    limit = state.limits.get("tool_calls")
    if limit is not None:
        fit = [call.call_id for call in waiting if call.call_id not in over]
        excess = min(max(used - len(over) - int(limit), 0), len(fit))
        over |= dict.fromkeys(fit[len(fit) - excess :], f"the limit tool_calls = {limit} is reached")
    return over


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
