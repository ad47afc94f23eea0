"""The rules that every model provider enforces on a request, checked on the provider view.

Written from the providers' rules and from the field reports of runs that were refused for ever, not from the code that
makes the view. Blocks have the shape of Anthropic's Messages API. The names of the rules:

* P1  every `tool_use` of an assistant message is answered in the very next message
* P2  every `tool_result` answers a `tool_use` of the message before, exactly once
* P3  ids are not empty, of characters that providers take, and unique in the request
* P4  no block, result or message is empty or blank
* P5  thinking carries the signature that it was issued with
* P7  the body is valid UTF-8 JSON
* P8  arguments are JSON objects; results stand before anything else in their message, as `tool` messages must follow
* roles, first, last  roles alternate, the first and the last message are the user's
* shape  a message or block is none that a provider knows
"""

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import orjson

_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_KINDS = {
    "user": {"text", "tool_result"},
    "assistant": {"text", "thinking", "redacted_thinking", "tool_use"},
}

Block = dict[str, Any]


def check_request(messages: list[dict[str, Any]]) -> list[str]:
    """Return what a strict provider would refuse in these messages: one text per violation, its rule's name first."""
    if problem := _body_problem(messages):
        return [problem]
    if not messages:
        return ["first: there is no message"]
    shape = [problem for at, message in enumerate(messages) for problem in _shape_problems(at, message)]
    if shape:
        return shape
    problems = list(_order_problems(messages))
    ids: set[str] = set()
    for at, message in enumerate(messages):
        for block in message["content"]:
            problems += [f"{problem} (message {at})" for problem in _block_problems(block, ids)]
        problems += [f"{problem} (message {at})" for problem in _pair_problems(messages, at)]
    return problems


def _body_problem(messages: list[dict[str, Any]]) -> str | None:
    try:
        json.dumps(messages, ensure_ascii=False, allow_nan=False).encode()
        orjson.dumps(messages)  # has one bound on nesting, where that of `json` is another one in each Python
    except (ValueError, TypeError, RecursionError) as error:
        return f"P7: the body cannot be written: {error}"
    return None


def _shape_problems(at: int, message: dict[str, Any]) -> Iterator[str]:
    content = message.get("content")
    kinds = _KINDS.get(message.get("role", ""))
    if kinds is None or not isinstance(content, list):
        yield f"shape: message {at} has no role or no list of blocks"
        return
    for block in content:
        if not isinstance(block, dict) or block.get("type") not in kinds:
            yield f"shape: message {at} of the {message['role']} holds {str(block)[:80]}"


def _order_problems(messages: list[dict[str, Any]]) -> Iterator[str]:
    roles = [message["role"] for message in messages]
    if roles[0] != "user":
        yield "first: the first message is not the user's"
    if roles[-1] != "user":
        yield "last: the last message is not the user's"
    for at, (role, following) in enumerate(pairwise(roles), 1):
        if role == following:
            yield f"roles: messages {at - 1} and {at} are both of the {role}"
    for at, message in enumerate(messages):
        if not message["content"]:
            yield f"P4: message {at} is empty"


def _block_problems(block: Block, ids: set[str]) -> Iterator[str]:
    kind = block["type"]
    if kind == "text" and _is_blank(block.get("text")):
        yield "P4: a text block is blank"
    elif kind == "thinking" and (_is_blank(block.get("signature")) or not isinstance(block.get("thinking"), str)):
        yield "P5: thinking without its signature"
    elif kind == "redacted_thinking" and _is_blank(block.get("data")):
        yield "P5: redacted thinking without its data"
    elif kind == "tool_result" and _is_blank(block.get("content")):
        yield "P4: a result is blank"
    elif kind == "tool_use":
        yield from _use_problems(block, ids)


def _use_problems(block: Block, ids: set[str]) -> Iterator[str]:
    known = block.get("id")
    if not isinstance(known, str) or not _ID.fullmatch(known):
        yield f"P3: {known!r} is no id"
    elif known in ids:
        yield f"P3: the id {known!r} is used twice"
    else:
        ids.add(known)
    if not isinstance(block.get("input"), dict):
        yield "P8: arguments are no JSON object"
    if _is_blank(block.get("name")):
        yield "P4: a tool_use without name"


def _pair_problems(messages: list[dict[str, Any]], at: int) -> Iterator[str]:
    content = messages[at]["content"]
    asked = _ids_of(messages[at - 1]["content"], "tool_use", "id") if at else []
    answered = _ids_of(content, "tool_result", "tool_use_id")
    for known in answered:
        if known not in asked:
            yield f"P2: the result {known!r} answers nothing of the message before"
    for known in set(answered):
        if answered.count(known) > 1:
            yield f"P2: {known!r} is answered {answered.count(known)} times"
    for known in asked:
        if known not in answered:
            yield f"P1: {known!r} is not answered in the next message"
    if at == len(messages) - 1:
        for known in _ids_of(content, "tool_use", "id"):
            yield f"P1: {known!r} is not answered"
    kinds = [block["type"] == "tool_result" for block in content]
    if kinds != sorted(kinds, reverse=True):
        yield "P8: a result stands behind other content"


def _ids_of(content: list[Block], kind: str, name: str) -> list[Any]:
    return [block.get(name) for block in content if block["type"] == kind]


def _is_blank(value: object) -> bool:
    if isinstance(value, list):  # a result made of blocks
        return all(isinstance(block, dict) and _is_blank(block.get("text")) for block in value)
    return not isinstance(value, str) or not value.strip()
