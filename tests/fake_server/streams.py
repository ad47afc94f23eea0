"""Answers as the two APIs stream them."""

import json
from collections.abc import Iterator
from typing import Any

from tests.fake_server.answers import Answer

Json = dict[str, Any]

PIECE = 7
"""Text, thinking and arguments come in pieces of so many characters."""
OPENAI_STOPS = {"end_turn": "stop", "tool_use": "tool_calls", "max_tokens": "length", "refusal": "content_filter"}


def anthropic_events(answer: Answer, model: str) -> Iterator[Json]:
    usage = answer.usage or {"input": 0, "output": 0}
    counts = {"input_tokens": usage["input"], "output_tokens": 1}
    for name, count in (("cache_read_input_tokens", "read"), ("cache_creation_input_tokens", "written")):
        counts[name] = usage.get(count, 0)
    message = {"id": "msg_fake", "type": "message", "role": "assistant", "model": model, "content": []}
    yield {"type": "message_start", "message": {**message, "stop_reason": None, "usage": counts}}
    yield {"type": "ping"}
    for index, block in enumerate(answer.blocks):
        yield from _anthropic_block(index, block)
    delta = {"stop_reason": answer.stop or ("tool_use" if answer.asks else "end_turn"), "stop_sequence": None}
    yield {"type": "message_delta", "delta": delta, "usage": {"output_tokens": usage["output"]}}
    yield {"type": "message_stop"}


def _anthropic_block(index: int, block: Json) -> Iterator[Json]:
    begun: dict[str, Json] = {
        "text": {"text": ""},
        "thinking": {"thinking": "", "signature": ""},
        "tool_use": {"input": {}},
    }
    yield {
        "type": "content_block_start",
        "index": index,
        "content_block": {**block, **begun.get(block["type"], {})},
    }
    for delta in _anthropic_deltas(block):
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


def _anthropic_deltas(block: Json) -> Iterator[Json]:
    match block["type"]:
        case "text":
            yield from ({"type": "text_delta", "text": piece} for piece in pieces(block["text"]))
        case "thinking":
            yield from ({"type": "thinking_delta", "thinking": piece} for piece in pieces(block["thinking"]))
            yield {"type": "signature_delta", "signature": block["signature"]}
        case "tool_use":
            for piece in pieces(arguments(block)):
                yield {"type": "input_json_delta", "partial_json": piece}


def openai_chunks(answer: Answer, model: str) -> Iterator[Json]:
    yield _chunk(model, {"role": "assistant", "content": ""})
    at = 0
    for block in answer.blocks:
        if block["type"] == "text":
            yield from (_chunk(model, {"content": piece}) for piece in pieces(block["text"]))
        elif block["type"] == "thinking":
            yield from (_chunk(model, {block["signature"]: piece}) for piece in pieces(block["thinking"]))
        else:
            named = {"index": at, "id": block["id"], "type": "function"}
            yield _chunk(model, {"tool_calls": [{**named, "function": {"name": block["name"], "arguments": ""}}]})
            for piece in pieces(arguments(block)):
                yield _chunk(model, {"tool_calls": [{"index": at, "function": {"arguments": piece}}]})
            at += 1
    stop = answer.stop or ("tool_use" if answer.asks else "end_turn")
    yield _chunk(model, {}, OPENAI_STOPS.get(stop, stop))
    if answer.usage is not None:
        counts: Json = {"prompt_tokens": answer.usage["input"], "completion_tokens": answer.usage["output"]}
        counts["prompt_tokens_details"] = {"cached_tokens": answer.usage.get("read", 0)}
        yield {**_chunk(model, {}), "choices": [], "usage": counts}


def _chunk(model: str, delta: Json, finish: str | None = None) -> Json:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "chatcmpl-fake", "object": "chat.completion.chunk", "created": 1, "model": model, "choices": [choice]}


def arguments(block: Json) -> str:
    return block["input"] if isinstance(block["input"], str) else json.dumps(block["input"])


def pieces(content: str) -> list[str]:
    return [content[at : at + PIECE] for at in range(0, len(content), PIECE)]
