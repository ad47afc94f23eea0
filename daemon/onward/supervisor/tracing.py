"""Spans of runs for OpenTelemetry, named by its conventions for generative AI: an extra, off unless it is configured.

Made of the records as they are written, so a span tells what the journal tells. A run is one trace, whose id follows
from the run's, so what it does after a crash belongs to the same trace. Attributes hold names, numbers and ids, never
what was said, asked or returned.
"""

import hashlib
from collections.abc import Callable
from datetime import datetime

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.util.types import AttributeValue

from onward import __version__
from onward.core.records import (
    AssistantTurn,
    InferenceFailed,
    InferenceStarted,
    Record,
    RunEnded,
    ToolCallDone,
    ToolCallStarted,
)
from onward.core.state import RunState
from onward.core.status import Status as RunStatus
from onward.core.times import parse_stamp
from onward.core.vocabulary import Outcome
from onward.supervisor.observed import Saw, tokens_of, tool_of

# The names, all of them here: https://opentelemetry.io/docs/specs/semconv/gen-ai/
OPERATION = "gen_ai.operation.name"
CHAT, EXECUTE_TOOL, INVOKE_AGENT = "chat", "execute_tool", "invoke_agent"
PROVIDER = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
RESPONSE_MODEL = "gen_ai.response.model"
FINISH_REASONS = "gen_ai.response.finish_reasons"
CONVERSATION = "gen_ai.conversation.id"
AGENT_NAME = "gen_ai.agent.name"
TOOL_NAME = "gen_ai.tool.name"
TOOL_TYPE = "gen_ai.tool.type"
TOOL_CALL = "gen_ai.tool.call.id"
ERROR_TYPE = "error.type"
TOKENS = {
    "input": "gen_ai.usage.input_tokens",
    "output": "gen_ai.usage.output_tokens",
    "cache_read": "gen_ai.usage.cache_read.input_tokens",
    "cache_write": "gen_ai.usage.cache_creation.input_tokens",
}
EXPORT_S = 2.0
COST = "onward.cost_usd"
REVIVALS = "onward.revivals"

Attributes = dict[str, AttributeValue]


class Tracing:
    """Makes what turns the records of a run into spans."""

    def __init__(self, processor: SpanProcessor, now: Callable[[], datetime], instance: str = "") -> None:
        self._ids = _Ids()
        resource = Resource.create(
            {"service.name": "onward", "service.version": __version__, "service.instance.id": instance}
        )
        self.provider = TracerProvider(
            resource=resource,
            id_generator=self._ids,
            span_limits=SpanLimits(max_attribute_length=256),
            shutdown_on_exit=False,  # `close` has done it, within its time
        )
        self.provider.add_span_processor(processor)
        self._tracer = self.provider.get_tracer("onward", __version__)
        self._now = now

    def of_run(self) -> Saw:
        """Return the observer of one run."""
        return _RunSpans(self)

    def close(self) -> None:
        """Hand over what is left. Blocks, for a few seconds at most."""
        self.provider.shutdown()

    def now_ns(self) -> int:
        return _ns(self._now())

    def child(self, run_id: str, name: str, kind: SpanKind, began_ns: int, attributes: Attributes) -> None:
        """Write a span below that of the run, which ends now."""
        context = trace.set_span_in_context(NonRecordingSpan(self._run_context(run_id)))
        self._write(name, kind, began_ns, attributes | {CONVERSATION: run_id}, context)

    def root(self, run_id: str, name: str, began_ns: int, attributes: Attributes) -> None:
        """Write the span of the run itself, which ends now."""
        self._ids.following = trace_ids(run_id)
        self._write(name, SpanKind.INTERNAL, began_ns, attributes | {CONVERSATION: run_id}, Context())

    def _write(self, name: str, kind: SpanKind, began_ns: int, attributes: Attributes, context: Context) -> None:
        span = self._tracer.start_span(name, context, kind, attributes, start_time=began_ns)
        if ERROR_TYPE in attributes:
            span.set_status(Status(StatusCode.ERROR))
        span.end(self.now_ns())

    def _run_context(self, run_id: str) -> SpanContext:
        trace_id, span_id = trace_ids(run_id)
        decided = self.provider.sampler.should_sample(None, trace_id, INVOKE_AGENT)
        flags = TraceFlags(TraceFlags.SAMPLED if decided.decision is Decision.RECORD_AND_SAMPLE else TraceFlags.DEFAULT)
        return SpanContext(trace_id, span_id, is_remote=False, trace_flags=flags)


class _RunSpans:
    """Implements `Saw`."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing
        self._asked: tuple[InferenceStarted, int] | None = None
        self._calls: dict[str, int] = {}

    def __call__(self, state: RunState, record: Record) -> None:
        match record:
            case InferenceStarted():
                self._asked = (record, self._tracing.now_ns())
            case AssistantTurn():
                told: Attributes = {TOKENS[kind]: number for kind, number in tokens_of(record)}
                told |= {FINISH_REASONS: [record.stop_reason], RESPONSE_MODEL: record.model, COST: record.cost_usd}
                self._answered(state, told)
            case InferenceFailed():
                self._answered(state, {ERROR_TYPE: record.failure})
            case ToolCallStarted():
                self._calls[record.call_id] = self._tracing.now_ns()
            case ToolCallDone():
                self._call(state, record)
            case RunEnded():
                self._ended(state, record)

    def _answered(self, state: RunState, told: Attributes) -> None:
        if self._asked is None:
            return  # asked by an earlier daemon: how long it took is not known
        (asked, began_ns), self._asked = self._asked, None
        attributes = {OPERATION: CHAT, PROVIDER: asked.provider, REQUEST_MODEL: asked.model}
        self._tracing.child(state.run_id, f"{CHAT} {asked.model}", SpanKind.CLIENT, began_ns, attributes | told)

    def _call(self, state: RunState, record: ToolCallDone) -> None:
        tool = tool_of(state, record.call_id)
        attributes: Attributes = {
            OPERATION: EXECUTE_TOOL,
            TOOL_NAME: tool,
            TOOL_TYPE: "function",
            TOOL_CALL: record.call_id,
        }
        if record.outcome != Outcome.OK:
            attributes[ERROR_TYPE] = str(record.outcome)
        began_ns = self._calls.pop(record.call_id, self._tracing.now_ns() - int(record.duration_s * 1e9))
        self._tracing.child(state.run_id, f"{EXECUTE_TOOL} {tool}", SpanKind.INTERNAL, began_ns, attributes)

    def _ended(self, state: RunState, record: RunEnded) -> None:
        attributes: Attributes = {
            OPERATION: INVOKE_AGENT,
            AGENT_NAME: state.agent_name,
            COST: state.totals.cost_usd,
            REVIVALS: state.totals.revivals,
            TOKENS["input"]: state.totals.tokens_in,
            TOKENS["output"]: state.totals.tokens_out,
        }
        if record.status != RunStatus.COMPLETED:
            attributes[ERROR_TYPE] = record.status
        began_ns = _ns(parse_stamp(state.created_at)) if state.created_at else self._tracing.now_ns()
        self._tracing.root(state.run_id, f"{INVOKE_AGENT} {state.agent_name}", began_ns, attributes)


class _Ids(IdGenerator):
    """Random ids, but for the span that stands for a run."""

    def __init__(self) -> None:
        self._random = RandomIdGenerator()
        self.following: tuple[int, int] | None = None

    def generate_span_id(self) -> int:
        if self.following is None:
            return int(self._random.generate_span_id())
        (_, span_id), self.following = self.following, None
        return span_id

    def generate_trace_id(self) -> int:
        return int(self._random.generate_trace_id()) if self.following is None else self.following[0]


def trace_ids(run_id: str) -> tuple[int, int]:
    """Return the ids of a run's trace and of the span that stands for the run."""
    digest = hashlib.sha256(run_id.encode()).digest()
    return int.from_bytes(digest[:16]) or 1, int.from_bytes(digest[16:24]) or 1


def tracing_to_collector(now: Callable[[], datetime], instance: str) -> Tracing:
    """Return what sends spans over OTLP/HTTP, to where the variables `OTEL_EXPORTER_OTLP_*` say; some seconds behind.

    Raises:
        ImportError: The extra `otel` is not installed.
    """
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return Tracing(BatchSpanProcessor(OTLPSpanExporter(timeout=EXPORT_S)), now, instance)


def _ns(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000_000) * 1000
