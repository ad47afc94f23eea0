"""What the records of a run count for, as they are written: metrics, and whoever else wants to know."""

from collections.abc import Callable, Iterator
from datetime import datetime

from onward.core.records import (
    AssistantTurn,
    InferenceFailed,
    InferenceStarted,
    InteractionAnswered,
    Record,
    RunQuarantined,
    RunRevived,
    ToolCallDone,
)
from onward.core.state import RunState
from onward.core.times import parse_stamp
from onward.supervisor.metrics import Meter

Saw = Callable[[RunState, Record], None]
"""Is told each record of one run once it is written and folded; not yet durable."""

UNKNOWN = "unknown"


def nobody(_state: RunState, _record: Record) -> None:
    """Want to know nothing."""


class Observed:
    """Counts the records of one run. `other` is told the same."""

    def __init__(self, meter: Meter, now: Callable[[], datetime], other: Saw = nobody) -> None:
        self._meter = meter
        self._now = now
        self._other = other
        self._provider = UNKNOWN

    def __call__(self, state: RunState, record: Record) -> None:
        match record:
            case InferenceStarted():
                self._provider = record.provider
            case InferenceFailed():
                self._meter.add("onward_llm_requests_total", provider=self._provider, outcome=record.failure)
            case AssistantTurn():
                self._turn(record)
            case ToolCallDone():
                tool, outcome = tool_of(state, record.call_id), str(record.outcome)
                self._meter.add("onward_tool_calls_total", tool=tool, outcome=outcome)
            case RunRevived():
                self._meter.add("onward_run_revivals_total", cause=str(record.cause))
            case RunQuarantined():
                self._meter.add("onward_runs_quarantined_total")
            case InteractionAnswered():
                self._answered(state, record)
        self._other(state, record)

    def _turn(self, record: AssistantTurn) -> None:
        self._meter.add("onward_llm_requests_total", provider=record.provider, outcome="ok")
        self._meter.add("onward_llm_cost_usd_total", record.cost_usd)
        for kind, number in tokens_of(record):
            self._meter.add("onward_llm_tokens_total", number, provider=record.provider, model=record.model, type=kind)

    def _answered(self, state: RunState, record: InteractionAnswered) -> None:
        question = state.interactions.get(record.interaction_id)
        if question is not None and question.asked_at:
            waited = (self._now() - parse_stamp(question.asked_at)).total_seconds()
            self._meter.observe("onward_question_wait_seconds", max(waited, 0.0))


def tool_of(state: RunState, call_id: str) -> str:
    """Return the tool of a call of the newest turn. A name that a model made up is none: it must not become a label."""
    name = next((call.name for call in state.calls if call.call_id == call_id), None)
    return name if name is not None and state.allows(name) else UNKNOWN


def tokens_of(record: AssistantTurn) -> Iterator[tuple[str, int]]:
    """Yield the tokens that an answer took, by type."""
    for kind in ("input", "output", "cache_read", "cache_write"):
        number = record.usage.get(f"{kind}_tokens")
        if type(number) is int and number > 0:
            yield kind, number
