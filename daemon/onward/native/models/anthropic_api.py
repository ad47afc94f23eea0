"""Anthropic's Messages API: request from the provider view, turn from the stream, failures from errors. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from onward.core.conversation import Block, ProviderMessage
from onward.native.models.arguments import arguments_of
from onward.native.models.failures import NO_MONEY, TOO_LONG, Rule, Said
from onward.ports.model import FailureClass as Failure
from onward.ports.model import ModelRequest
from onward.ports.tool import ToolSpec

Json = dict[str, Any]

DEFAULT_OUTPUT_TOKENS = 16_384
"""For a model of which nothing is known: every current one takes as much."""
LONGEST_OUTPUT_TOKENS = 32_768
CACHE = {"type": "ephemeral"}

FAILURES: tuple[Rule, ...] = (
    Rule(failure=Failure.QUOTA, kinds=frozenset({"billing_error", "insufficient_quota"})),
    Rule(failure=Failure.QUOTA, statuses=frozenset({402})),
    Rule(failure=Failure.QUOTA, statuses=frozenset({400, 403, 429}), text=NO_MONEY),
    Rule(failure=Failure.AUTH, statuses=frozenset({401, 403})),
    Rule(failure=Failure.AUTH, kinds=frozenset({"authentication_error", "permission_error"})),
    Rule(failure=Failure.CONTEXT_OVERFLOW, statuses=frozenset({413})),
    Rule(failure=Failure.CONTEXT_OVERFLOW, kinds=frozenset({"request_too_large"})),
    Rule(failure=Failure.CONTEXT_OVERFLOW, statuses=frozenset({200, 400, 422}), text=TOO_LONG),
    Rule(failure=Failure.OVERLOADED, statuses=frozenset({503, 529})),
    Rule(failure=Failure.OVERLOADED, kinds=frozenset({"overloaded_error"})),
    Rule(failure=Failure.RATE_LIMITED, statuses=frozenset({429})),
    Rule(failure=Failure.RATE_LIMITED, kinds=frozenset({"rate_limit_error"})),
    Rule(failure=Failure.MODEL_MISSING, statuses=frozenset({404})),
    Rule(failure=Failure.NETWORK, statuses=frozenset({408, 504}), kinds=frozenset({"timeout_error"})),
    Rule(failure=Failure.NETWORK, statuses=frozenset({408})),
    Rule(failure=Failure.INVALID_REQUEST, kinds=frozenset({"invalid_request_error"})),
)

STOPS = {
    "end_turn": "end_turn",
    "stop_sequence": "end_turn",
    "tool_use": "tool_use",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "pause_turn": "length",
    "refusal": "refusal",
}


def body_of(request: ModelRequest, model: str, max_tokens: int) -> Json:
    """Return the request's body. Cached up to the tools, the system prompt and the two newest messages of the user."""
    body: Json = {"model": model, "max_tokens": max_tokens, "stream": True, "messages": _cached(request.messages)}
    if request.system_prompt.strip():
        body["system"] = [{"type": "text", "text": request.system_prompt, "cache_control": CACHE}]
    if request.tools:
        tools = [_tool(tool) for tool in request.tools]
        body["tools"] = [*tools[:-1], {**tools[-1], "cache_control": CACHE}]
    return body


def without_thinking(body: Json) -> Json | None:
    """Return the body without reasoning, or None where it holds none."""
    messages = [
        {**message, "content": [block for block in message["content"] if "thinking" not in block["type"]]}
        for message in body["messages"]
    ]
    lost = sum(len(message["content"]) for message in body["messages"]) > sum(len(m["content"]) for m in messages)
    return {**body, "messages": messages} if lost else None


def said_by(body: object) -> tuple[str, str]:
    """Return the names and the message in the body of an error."""
    error = body.get("error", body) if isinstance(body, Mapping) else None
    if not isinstance(error, Mapping):
        return "", error if isinstance(error, str) else body if isinstance(body, str) else ""
    details = error.get("details")
    code = details.get("error_code") if isinstance(details, Mapping) else None
    return " ".join(str(name) for name in (error.get("type"), code) if name), str(error.get("message") or "")


class Collector:
    """Puts the events of one stream together. Blocks stay as the provider gave them, byte for byte."""

    def __init__(self) -> None:
        self._blocks: dict[int, Block] = {}
        self._open: dict[int, list[str]] = {}
        self._usage: Json = {}
        self._stop: str | None = None
        self.whole = False

    def add(self, event: Json) -> str | None:
        """Take an event; returns the piece of text in it, if there is one."""
        match event.get("type"):
            case "message_start":
                self._count(event.get("message", {}).get("usage"))
            case "content_block_start":
                self._blocks[event["index"]] = dict(event["content_block"])
                self._open[event["index"]] = []
            case "content_block_delta":
                return self._delta(event["index"], event["delta"])
            case "content_block_stop":
                self._close(event["index"])
            case "message_delta":
                self._stop = event.get("delta", {}).get("stop_reason") or self._stop
                self._count(event.get("usage"))
            case "message_stop":
                self.whole = self._stop is not None and not self._open
        return None

    @property
    def content(self) -> list[Block]:
        return [self._blocks[index] for index in sorted(self._blocks)]

    @property
    def stop_reason(self) -> str:
        return STOPS.get(self._stop or "", "end_turn")

    @property
    def usage(self) -> Json:
        """Token counts in Onward's form: what was read from or written to the cache is part of the input."""
        names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")
        fresh, read, written, output = (self._usage.get(name, 0) for name in names)
        if not self._usage:
            return {}
        usage = {"input_tokens": fresh + read + written, "output_tokens": output}
        cached = {"cache_read_tokens": read, "cache_write_tokens": written}
        return usage | {name: count for name, count in cached.items() if count}

    def failed(self) -> Said | None:
        """Return what the server said instead of an answer, inside a stream that ended well."""
        return None

    def _delta(self, index: int, delta: Json) -> str | None:
        block = self._blocks[index]
        match delta.get("type"):
            case "text_delta":
                block["text"] = block.get("text", "") + delta["text"]
                return str(delta["text"])
            case "thinking_delta":
                block["thinking"] = block.get("thinking", "") + delta["thinking"]
            case "signature_delta":
                block["signature"] = delta["signature"]
            case "input_json_delta":
                self._open[index].append(delta["partial_json"])
            case "citations_delta":
                block["citations"] = [*(block.get("citations") or []), delta["citation"]]
        return None

    def _close(self, index: int) -> None:
        pieces = self._open.pop(index)
        if pieces and "input" in self._blocks[index]:
            self._blocks[index]["input"] = arguments_of("".join(pieces))

    def _count(self, usage: object) -> None:
        if isinstance(usage, Mapping):
            self._usage.update({name: count for name, count in usage.items() if type(count) is int})


def _tool(tool: ToolSpec) -> Json:
    return {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}


def _cached(messages: Sequence[ProviderMessage]) -> list[ProviderMessage]:
    """Return the messages with marks at the ends of the newest two of the user, which stay as they are."""
    marked = list(messages)
    places = [at for at in range(len(marked) - 1, max(len(marked) - 4, -1), -1) if marked[at]["role"] == "user"]
    for at in places[:2]:
        *before, last = marked[at]["content"]
        marked[at] = {**marked[at], "content": [*before, {**last, "cache_control": CACHE}]}
    return marked
