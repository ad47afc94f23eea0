"""What a strict provider refuses, checked on the bodies as they came over the wire. The rules are named in `strict`."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from onward.testing.strict import check_request

Json = dict[str, Any]

CACHE_MARKS = 4
REASONING = ("reasoning_content", "reasoning")


def anthropic_problems(body: Json, issued: Mapping[str, str], window: int | None) -> list[str]:
    """Return what is wrong with a body of the Messages API. `issued`: thinking by the signature that it was given."""
    problems = list(_marks(body))
    messages = [{**m, "content": [_unmarked(block) for block in m["content"]]} for m in body["messages"]]
    problems += check_request(messages)
    for message in messages:
        for block in message["content"]:
            if block["type"] == "thinking" and issued.get(block["signature"]) != block["thinking"]:
                problems.append(f"P5: {block['signature']!r} was not issued for this thinking")
    if type(body.get("max_tokens")) is not int or body["max_tokens"] < 1:
        problems.append("shape: max_tokens is missing")
    if body.get("system") in ("", []) or any(not block["text"].strip() for block in body.get("system", [])):
        problems.append("P4: the system prompt is blank")
    return problems + _window(body, body.get("max_tokens", 0), window)


def openai_problems(body: Json, window: int | None) -> list[str]:
    """Return what is wrong with a body of chat completions."""
    messages = list(body["messages"])
    if messages and messages[0]["role"] == "system" and not messages.pop(0)["content"].strip():
        return ["P4: the system prompt is blank"]
    problems = list(_tool_messages(messages))
    if not problems:
        problems += check_request(list(_neutral(messages)))
    limit = body.get("max_completion_tokens") or body.get("max_tokens") or 0
    return problems + _window(body, limit, window)


def _marks(body: Json) -> Iterator[str]:
    blocks = [*body.get("tools", []), *body.get("system", [])]
    blocks += [block for message in body["messages"] for block in message["content"]]
    marked = [block for block in blocks if "cache_control" in block]
    if len(marked) > CACHE_MARKS:
        yield f"shape: {len(marked)} cache marks, a maximum of {CACHE_MARKS} is allowed"
    if any("thinking" in block.get("type", "") for block in marked):
        yield "shape: thinking cannot be marked"


def _unmarked(block: Json) -> Json:
    return {name: value for name, value in block.items() if name != "cache_control"}


def _window(body: Json, max_tokens: int, window: int | None) -> list[str]:
    used = len(json.dumps(body["messages"])) // 4
    if window is None or used + max_tokens <= window:
        return []
    return [f"P6: {used} + {max_tokens} tokens do not fit the window of {window}"]


def _tool_messages(messages: list[Json]) -> Iterator[str]:
    """P8: each `tool_call_id` is answered by one `tool` message, directly after; `arguments` is a JSON object."""
    expected: list[str] = []
    for at, message in enumerate(messages):
        if message["role"] == "tool":
            if message["tool_call_id"] not in expected:
                yield f"P8: message {at} answers {message['tool_call_id']!r}, which nobody asked here"
            else:
                expected.remove(message["tool_call_id"])
            continue
        if expected:
            yield f"P8: {expected} are not answered before message {at}"
        expected = [known["id"] for known in message.get("tool_calls") or ()]
        for known in message.get("tool_calls") or ():
            yield from _call_problems(known)
        if not (message.get("content") or message.get("tool_calls")):
            yield f"P4: message {at} is empty"
    if expected:
        yield f"P8: {expected} are not answered"


def _call_problems(known: Json) -> Iterator[str]:
    if known["type"] != "function":
        yield "shape: a call that is no function"
    try:
        is_object = isinstance(json.loads(known["function"]["arguments"]), dict)
    except ValueError:
        is_object = False
    if not is_object:
        yield f"P8: the arguments {known['function']['arguments']!r} are no JSON object"


def _neutral(messages: list[Json]) -> Iterator[Json]:
    """Give the messages the shape that `strict` knows: results and text of one place are one message of the user."""
    said: list[Json] = []
    for message in messages:
        if message["role"] == "tool":
            said.append({"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": message["content"]})
        elif message["role"] == "user":
            said.append({"type": "text", "text": message["content"]})
        else:
            if said:
                yield {"role": "user", "content": said}
            said = []
            yield {"role": "assistant", "content": list(_blocks(message))}
    if said:
        yield {"role": "user", "content": said}


def _blocks(message: Json) -> Iterator[Json]:
    if message.get("content") is not None:
        yield {"type": "text", "text": message["content"]}
    for known in message.get("tool_calls") or ():
        function = known["function"]
        arguments = json.loads(function["arguments"])
        yield {"type": "tool_use", "id": known["id"], "name": function["name"], "input": arguments}
