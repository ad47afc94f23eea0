"""Spans tell what the journal tells, by the conventions for generative AI, and nothing that was said."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from onward.core.conversation import CallState, Turn
from onward.core.records import InferenceFailed, InferenceStarted, RunEnded, ToolCallStarted
from onward.core.state import RunState
from onward.core.times import stamp
from onward.core.vocabulary import Outcome
from onward.supervisor.telling import traced
from onward.supervisor.tracing import Tracing, trace_ids
from tests.supervisor.test_metrics import done, turn

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
RUN = "worker-1"
SAID = "nobody is told of the swordfish"


class World:
    def __init__(self) -> None:
        self.now = START
        self.exporter = InMemorySpanExporter()
        self.tracing = Tracing(SimpleSpanProcessor(self.exporter), lambda: self.now, "i-1")
        self.state = RunState(run_id=RUN, agent_name="worker", agent={"tools": ["shell"]}, created_at=stamp(START))
        self.state.task = self.state.result = SAID
        call = CallState(
            call_id="t1c1",
            provider_id="p",
            name="shell",
            arguments={"command": SAID},
            effect="unknown",
            result=SAID,
        )
        self.state.conversation.turn = Turn(turn=1, seen=1, content=[], stop_reason="tool_use", calls=[call])
        self.saw = self.tracing.of_run()

    def tell(self, record: Any, after_s: float = 0.0) -> None:
        self.now += timedelta(seconds=after_s)
        self.saw(self.state, record)

    def restart(self) -> None:
        self.saw = self.tracing.of_run()

    def spans(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self.exporter.get_finished_spans()}


def asked() -> InferenceStarted:
    return InferenceStarted(attempt=1, provider="anthropic", model="m-1", active_s=0.0)


@pytest.fixture
def world() -> World:
    made = World()
    made.tell(asked())
    made.tell(turn(content=[{"type": "text", "text": SAID}]), 2.0)
    made.tell(ToolCallStarted(call_id="t1c1"))
    made.restart()  # the daemon died: the call's start is known by its duration alone
    made.tell(done("t1c1", Outcome.INTERRUPTED), 1.0)
    made.tell(RunEnded(status="failed", reason=SAID, result=SAID), 3.0)
    return made


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def seconds(span: ReadableSpan) -> float:
    assert span.end_time is not None
    assert span.start_time is not None
    return round((span.end_time - span.start_time) / 1e9, 6)


def test_a_run_is_one_trace_through_a_restart(world: World) -> None:
    spans = world.spans()
    trace_id, root_id = trace_ids(RUN)
    assert {span.context.trace_id for span in spans.values() if span.context} == {trace_id}
    root = spans["invoke_agent worker"]
    assert (root.context.span_id if root.context else None, root.parent) == (root_id, None)
    for name in ("chat m-1", "execute_tool shell"):
        parent = spans[name].parent
        assert (parent.span_id if parent else None) == root_id
    assert root.resource.attributes["service.name"] == "onward"


def test_spans_follow_the_conventions(world: World) -> None:
    chat, tool, agent = (world.spans()[name] for name in ("chat m-1", "execute_tool shell", "invoke_agent worker"))
    assert (chat.kind, seconds(chat), chat.status.status_code) == (SpanKind.CLIENT, 2.0, StatusCode.UNSET)
    assert attributes(chat) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "anthropic",
        "gen_ai.request.model": "m-1",
        "gen_ai.response.model": "m-1",
        "gen_ai.response.finish_reasons": ("end_turn",),
        "gen_ai.usage.input_tokens": 70,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": 40,
        "gen_ai.conversation.id": RUN,
        "onward.cost_usd": 0.25,
    }
    assert (tool.kind, seconds(tool), tool.status.status_code) == (SpanKind.INTERNAL, 0.1, StatusCode.ERROR)
    assert attributes(tool) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "shell",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": "t1c1",
        "gen_ai.conversation.id": RUN,
        "error.type": "interrupted",
    }
    assert (seconds(agent), attributes(agent)["error.type"]) == (6.0, "failed")
    assert attributes(agent)["gen_ai.agent.name"] == "worker"


def test_a_request_that_failed_is_an_error(world: World) -> None:
    world.exporter.clear()
    world.tell(asked())
    world.tell(InferenceFailed(failure="overloaded", message=SAID, retryable=True, active_s=1.0), 1.0)
    (span,) = world.exporter.get_finished_spans()
    assert (attributes(span)["error.type"], span.status.status_code) == ("overloaded", StatusCode.ERROR)


def test_nothing_that_was_said_is_told(world: World) -> None:
    assert all("swordfish" not in span.to_json() for span in world.exporter.get_finished_spans())


@pytest.mark.parametrize(
    "environment", [{}, {"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:1"}]
)
async def test_it_is_off_unless_a_collector_is_named(environment: dict[str, str], capfd: Any) -> None:
    async with traced(environment, lambda: START, "i-1") as saw:
        saw()(RunState(), asked())
    assert capfd.readouterr() == ("", "")
