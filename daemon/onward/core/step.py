"""What a run does next: one decision from its state. Pure.

`next_step` is asked after every change. The shell carries the answer out and asks again; it holds no policy of its own.
"""

from dataclasses import dataclass
from typing import Any

from onward.core import retry
from onward.core.conversation import CallState
from onward.core.state import RunState
from onward.core.status import TERMINAL, Status
from onward.core.times import seconds_between
from onward.core.vocabulary import Effect, Needs


@dataclass(frozen=True, slots=True)
class Infer:
    """Ask this model. `attempt` counts the requests since the newest turn, from 1."""

    attempt: int
    model: str


@dataclass(frozen=True, slots=True)
class RunCalls:
    """Hand these calls over now, side by side; with none, wait for those that run."""

    start: tuple[CallState, ...]


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """Nothing to do before this UTC time."""

    retry_at: str
    reason: str


@dataclass(frozen=True, slots=True)
class Park:
    """The run cannot go on without something."""

    needs: Needs
    reason: str
    retry_at: str | None = None


@dataclass(frozen=True, slots=True)
class End:
    """The run is over."""

    status: Status
    reason: str
    result: str | None


@dataclass(frozen=True, slots=True)
class Rest:
    """The run is not active: nothing to do until somebody changes that."""

    status: Status


Step = Infer | RunCalls | WaitUntil | Park | End | Rest

TOKENS_PER_BYTE = 0.3
"""A cautious estimate over languages and code, used only to see that a request cannot fit."""


def next_step(state: RunState, *, now: str, active_s: float, workers: int, window_tokens: int | None = None) -> Step:
    """Return the run's next step.

    Args:
        state: The folded state.
        now: The UTC time in the journal's form.
        active_s: Seconds the run was active so far, in all its lives.
        workers: How many calls of one run may run side by side.
        window_tokens: The model's context window; None when unknown.
    """
    if state.cancel_by is not None and state.status not in TERMINAL:
        return _cancelled(state)
    if state.status is not Status.ACTIVE:
        return Rest(state.status)
    if state.gap_since_turn:
        return Park(Needs.DECISION, f"the journal is damaged after the newest turn: {state.damage[-1].what}")
    if state.open_calls:
        return RunCalls(tuple(callable_now(state.calls, workers)))
    if ended := _ended(state):
        return ended
    if spent := budget_reached(state, active_s):
        return Park(Needs.BUDGET, spent)
    if window_tokens is not None and state.conversation.size_bytes * TOKENS_PER_BYTE > window_tokens:
        return Park(Needs.DECISION, f"the conversation does not fit the model's window of {window_tokens} tokens")
    model = choose_model(state, now)
    return Infer(state.attempts + 1, model) if model is not None else _wait(state, now)


def choose_model(state: RunState, now: str) -> str | None:
    """Return the first model of the chain that is not cooling down after a failure; None when all are."""
    return next((model for model in state.chain if state.cooling.get(model, "") <= now), None)


def _wait(state: RunState, now: str) -> Step:
    retry_at = min(state.cooling[model] for model in state.chain)
    needs, meaning = retry.needs_of(state.last_failure)
    if seconds_between(now, retry_at) > retry.LONGEST_WAIT_S:
        return Park(needs, f"{meaning}; it is tried again at {retry_at}", retry_at)
    return WaitUntil(retry_at, meaning)


def _cancelled(state: RunState) -> Step:
    """What runs is waited for (it is being ended), what was not handed over never runs."""
    if any(call.started for call in state.open_calls):
        return RunCalls(())
    return End(Status.CANCELLED, f"cancelled by {state.cancel_by}", None)


def callable_now(calls: list[CallState], workers: int) -> list[CallState]:
    """Return the calls of a batch that can be handed over now, in model order.

    Calls that only read run side by side, up to `workers`; any other call waits for all before it and runs alone, so
    that what it changes happens in the order the model asked for.
    """
    running = [call for call in calls if call.started and call.outcome is None]
    ready: list[CallState] = []
    for call in calls:
        if call.outcome is not None or call.started:
            continue
        busy = len(running) + len(ready)
        if call.effect != Effect.READ:
            return ready if busy else [call]
        if busy >= workers or any(other.effect != Effect.READ for other in running):
            return ready
        ready.append(call)
    return ready


def _ended(state: RunState) -> End | None:
    """Return the end that the newest turn makes, if it makes one and nothing is owed."""
    turn = state.turn
    if turn is None or state.conversation.unseen():
        return None
    if (finish := state.finish) is not None:
        return End(Status(finish.ends_run or Status.COMPLETED), "finish", finish.result)
    if turn.asks == 0 and turn.stop_reason == "end_turn":
        text = "\n".join(block["text"] for block in turn.content if type(block.get("text")) is str)
        return End(Status.COMPLETED, "the last turn asked for no tools", text)
    return None


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
