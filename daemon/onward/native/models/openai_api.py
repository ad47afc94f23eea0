"""OpenAI's chat completions, and what other servers make of them: request, turn and failures. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from onward.core.conversation import Block, ProviderMessage
from onward.native.models.failures import NO_MONEY, TOO_LONG, Rule
from onward.ports.model import FailureClass as Failure
from onward.ports.model import ModelRequest
from onward.ports.tool import ToolSpec

Json = dict[str, Any]

REASONING_FIELDS = ("reasoning_content", "reasoning")
"""Where servers put what a model thought. The name of the field is what its thinking block is signed with."""


FAILURES: tuple[Rule, ...] = (
    Rule(failure=Failure.QUOTA, kinds=frozenset({"insufficient_quota", "billing_hard_limit_reached"})),
    Rule(failure=Failure.QUOTA, statuses=frozenset({402})),
    Rule(failure=Failure.QUOTA, statuses=frozenset({400, 403, 429}), text=NO_MONEY),
    Rule(failure=Failure.AUTH, statuses=frozenset({401, 403})),
    Rule(failure=Failure.AUTH, kinds=frozenset({"invalid_api_key", "authentication_error"})),
    Rule(failure=Failure.CONTEXT_OVERFLOW, kinds=frozenset({"context_length_exceeded", "exceed_context_size_error"})),
    Rule(failure=Failure.CONTEXT_OVERFLOW, statuses=frozenset({413})),
    # Ollama and llama.cpp say it with a 500 too.
    Rule(failure=Failure.CONTEXT_OVERFLOW, statuses=frozenset({200, 400, 422, 500}), text=TOO_LONG),
    Rule(failure=Failure.OVERLOADED, statuses=frozenset({503, 529})),
    Rule(failure=Failure.OVERLOADED, kinds=frozenset({"overloaded_error", "server_overloaded", "slow_down", "503"})),
    Rule(failure=Failure.RATE_LIMITED, statuses=frozenset({429})),
    Rule(failure=Failure.RATE_LIMITED, kinds=frozenset({"rate_limit_exceeded", "rate_limit_error", "429"})),
    Rule(failure=Failure.MODEL_MISSING, statuses=frozenset({404})),
    Rule(failure=Failure.MODEL_MISSING, kinds=frozenset({"model_not_found"})),
    Rule(failure=Failure.NETWORK, statuses=frozenset({408})),
    Rule(failure=Failure.INVALID_REQUEST, statuses=frozenset({200}), kinds=frozenset({"invalid_request_error"})),
)

STOPS = {"stop": "end_turn", "length": "length", "content_filter": "refusal"}


def body_of(request: ModelRequest, model: str, max_tokens: int | None, *, is_own_server: bool) -> Json:
    """Return the request's body.

    Args:
        request: What is asked.
        model: The model's name there.
        max_tokens: None: as long as the server allows.
        is_own_server: Whether it is another server than OpenAI's; those know the limit by its older name.
    """
    messages = [message for said in request.messages for message in _messages(said)]
    if request.system_prompt.strip():
        messages.insert(0, {"role": "system", "content": request.system_prompt})
    body: Json = {"model": model, "stream": True, "stream_options": {"include_usage": True}, "messages": messages}
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
    if max_tokens is not None:
        body["max_tokens" if is_own_server else "max_completion_tokens"] = max_tokens
    return body


def repaired(body: Json, message: str) -> Json | None:
    """Return the body as a server takes it that refused one of its optional parts, or None.

    Servers differ in what they refuse: reasoning that is given back (Groq, Mistral), `stream_options`, one of the two
    names of the limit; and current models of OpenAI refuse tools here while they reason.
    """
    if "reasoning_effort" in message and "reasoning_effort" not in body:
        return {**body, "reasoning_effort": "none"}
    if "reasoning" in message and (stripped := _without_reasoning(body)) is not None:
        return stripped
    if "stream_options" in message and "stream_options" in body:
        return {name: value for name, value in body.items() if name != "stream_options"}
    for name, other in (("max_completion_tokens", "max_tokens"), ("max_tokens", "max_completion_tokens")):
        if name in body and name in message:
            return {(other if key == name else key): value for key, value in body.items()}
    return None


def said_by(body: object) -> tuple[str, str]:
    """Return the names and the message in the body of an error, whichever server wrote it."""
    if isinstance(body, list) and body:  # Gemini wraps it into a list
        body = body[0]
    error = body.get("error", body) if isinstance(body, Mapping) else body
    if not isinstance(error, Mapping):
        return "", str(error) if isinstance(error, str) else ""
    names = [str(error[name]) for name in ("type", "code", "status") if isinstance(error.get(name), str | int)]
    told = error.get("message") or error.get("detail") or error.get("error") or ""
    return " ".join(name.replace(" ", "_") for name in names), told if isinstance(told, str) else str(told)


def _messages(said: ProviderMessage) -> Iterator[Json]:
    """Translate one message of the view: results of calls become messages of their own, directly after the calls."""
    if said["role"] == "assistant":
        yield _assistant(said["content"])
        return
    for block in said["content"]:
        if block["type"] == "tool_result":
            yield {"role": "tool", "tool_call_id": block["tool_use_id"], "content": block["content"]}
    if text := _text(said["content"]):
        yield {"role": "user", "content": text}


def _assistant(content: Sequence[Block]) -> Json:
    message: Json = {"role": "assistant", "content": _text(content) or None}
    for block in content:
        if block["type"] == "thinking" and block["signature"] in REASONING_FIELDS:
            message[block["signature"]] = block["thinking"]
    calls = [_call(block) for block in content if block["type"] == "tool_use"]
    return {**message, "tool_calls": calls} if calls else message


def _text(content: Sequence[Block]) -> str:
    return "\n\n".join(block["text"] for block in content if block["type"] == "text")


def _call(block: Block) -> Json:
    arguments = orjson.dumps(block["input"]).decode()
    return {"id": block["id"], "type": "function", "function": {"name": block["name"], "arguments": arguments}}


def _tool(tool: ToolSpec) -> Json:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def _without_reasoning(body: Json) -> Json | None:
    if not any(name in message for message in body["messages"] for name in REASONING_FIELDS):
        return None
    messages = [
        {name: value for name, value in message.items() if name not in REASONING_FIELDS} for message in body["messages"]
    ]
    return {**body, "messages": messages}
