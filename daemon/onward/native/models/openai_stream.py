"""A turn from the chunks of a chat completion, as OpenAI and other servers write them. Pure.

Other servers leave out the usage, ids and indexes, give one id or index to all calls, send a call whole or in pieces,
as `function_call`, as `tool_calls` or as both.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from onward.core.conversation import Block
from onward.native.models.arguments import arguments_of
from onward.native.models.failures import Said
from onward.native.models.openai_api import REASONING_FIELDS, STOPS, said_by

Json = dict[str, Any]


@dataclass(slots=True, kw_only=True)
class Call:
    """One call while its pieces come."""

    index: object = None
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """Whether its arguments are an object already, so that a new name begins another call."""
        return bool(self.arguments) and isinstance(arguments_of("".join(self.arguments)), dict)


class Collector:
    """Puts the chunks of one stream together."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._reasoning_field = ""
        self._calls: list[Call] = []
        self._old_calls: list[Call] = []
        self._usage: Json = {}
        self._finish: str | None = None
        self._refused = False
        self._error: Said | None = None

    def add(self, chunk: Json) -> str | None:
        """Take a chunk; returns the piece of text in it, if there is one."""
        if isinstance(usage := chunk.get("usage"), Mapping):
            self._usage = dict(usage)
        for choice in chunk.get("choices") or ():
            if error := choice.get("error"):
                kind, message = said_by(error)
                self._error = Said(status=200, kind=kind, message=message)
            if choice.get("finish_reason"):
                self._finish = str(choice["finish_reason"])
            return self._delta(choice.get("delta") or choice.get("message") or {})
        return None

    @property
    def whole(self) -> bool:
        return self._finish is not None

    @property
    def content(self) -> list[Block]:
        reasoning, text = "".join(self._reasoning), "".join(self._text)
        content: list[Block] = []
        if reasoning.strip():
            content.append({"type": "thinking", "thinking": reasoning, "signature": self._reasoning_field})
        if text.strip():
            content.append({"type": "text", "text": text})
        return content + [_block(call) for call in self._asked]

    @property
    def stop_reason(self) -> str:
        stop = "refusal" if self._refused else STOPS.get(self._finish or "", "end_turn")
        return "tool_use" if self._asked and stop == "end_turn" else stop

    @property
    def usage(self) -> Json:
        """Token counts in Onward's form; empty where the server told none."""
        counts = {
            "input_tokens": _count(self._usage, "prompt_tokens"),
            "output_tokens": _count(self._usage, "completion_tokens"),
        }
        if not any(counts.values()):
            return {}
        details = self._usage.get("prompt_tokens_details")
        cached = {
            "cache_read_tokens": _count(details, "cached_tokens") or _count(self._usage, "prompt_cache_hit_tokens"),
            "cache_write_tokens": _count(details, "cache_write_tokens"),
        }
        return counts | {name: count for name, count in cached.items() if count}

    def failed(self) -> Said | None:
        """Return what the server said instead of an answer, inside a stream that ended well."""
        if self._finish == "error":
            return self._error or Said(status=200, message="the server broke off its answer")
        return self._error

    @property
    def _asked(self) -> list[Call]:
        """The calls, but for those that have no name: no server could take them back."""
        return [call for call in self._calls or self._old_calls if call.name]

    def _delta(self, delta: Json) -> str | None:
        self._think(delta)
        for piece in delta.get("tool_calls") or ():
            self._call(self._calls, piece.get("function") or {}, index=piece.get("index"), known=piece.get("id"))
        if piece := delta.get("function_call"):
            self._call(self._old_calls, piece, index=0, known=None)
        text = _text(delta.get("content"))
        if refusal := delta.get("refusal"):
            self._refused = True
            text += str(refusal)
        self._text.append(text)
        return text or None

    def _think(self, delta: Json) -> None:
        name = next((name for name in REASONING_FIELDS if isinstance(delta.get(name), str) and delta[name]), None)
        if name is not None:
            self._reasoning_field = self._reasoning_field or name
            self._reasoning.append(delta[name])

    def _call(self, calls: list[Call], function: Json, *, index: object, known: object) -> None:
        name, arguments, view_id = function.get("name") or "", function.get("arguments"), str(known or "")
        call = _found(calls, index, view_id, begins=bool(name and arguments))
        if call is None:
            call = Call(index=index)
            calls.append(call)
        call.id, call.name = call.id or view_id, call.name or str(name)
        if arguments:
            call.arguments.append(arguments if isinstance(arguments, str) else json.dumps(arguments))


def _found(calls: list[Call], index: object, known: str, *, begins: bool) -> Call | None:
    """Return the call that a piece goes on with, or None where it begins another one.

    `begins`: the piece has a name and arguments, as the first piece of a call can have.
    """
    same = calls if index is None else [call for call in calls if call.index == index]
    if not same:
        return None
    newest = same[-1]
    if known and newest.id and known != newest.id:
        return next((call for call in same if call.id == known), None)
    # One index or id for all calls, each of them whole in its piece.
    return None if begins and newest.is_whole else newest


def _block(call: Call) -> Block:
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": arguments_of("".join(call.arguments))}


def _text(content: object) -> str:
    """Return text that is a string, or a list of parts (Mistral)."""
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, Mapping))
    return content if isinstance(content, str) else ""


def _count(usage: object, name: str) -> int:
    count = usage.get(name) if isinstance(usage, Mapping) else None
    return count if type(count) is int else 0
