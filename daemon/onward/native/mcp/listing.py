"""From what a server lists to what the model is told: names made safe, texts cleaned, everything bounded. Pure."""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import orjson

from onward.core.text import clean_json, display
from onward.native.mcp.settings import ServerSettings
from onward.ports.tool import ToolSpec

MAX_TOOLS = 128
NAME_CHARACTERS = 64
DESCRIPTION_CHARACTERS = 4000
SCHEMA_BYTES = 32 * 1024
SCHEMA_DEPTH = 40

_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
_PROPERTY = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_SHOWN_KEYS = {"description", "title", "$comment"}
_NOT_AT_TOP = {"$schema", "$id", "oneOf", "anyOf", "allOf", "not", "if", "then", "else"}
"""What providers refuse at the top of a schema; the server checks the arguments itself anyway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A tool as its server lists it."""

    name: str
    description: str
    schema: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """The tools of a server that the model is told of: by the server's own name; and why others are left out."""

    specs: dict[str, ToolSpec]
    left_out: dict[str, str]


def offer(settings: ServerSettings, tools: Iterable[Listed]) -> Offer:
    """Return what of a listing the model is told; a tool has the same name each time, whatever is listed beside it."""
    specs: dict[str, ToolSpec] = {}
    left_out: dict[str, str] = {}
    taken: set[str] = set()
    for tool in tools:
        if not settings.allows(tool.name):
            continue
        name = tool_name(settings.name, tool.name)
        if reason := _refusal(tool, name, taken, len(specs)):
            left_out[display(tool.name, NAME_CHARACTERS)] = reason
            continue
        taken.add(name)
        specs[tool.name] = ToolSpec(
            name=name,
            description=display(tool.description.strip(), DESCRIPTION_CHARACTERS) or f"{tool.name} of {settings.name}",
            parameters=clean_schema(tool.schema),
            effect=settings.effect_of(tool.name),
            stoppable=True,
        )
    return Offer(specs=specs, left_out=left_out)


def _refusal(tool: Listed, name: str, taken: set[str], count: int) -> str | None:
    if not tool.name.strip():
        return "it has no name"
    if name in taken:
        return "it is listed twice"
    if count >= MAX_TOOLS:
        return f"more than {MAX_TOOLS} tools"
    properties = tool.schema.get("properties")
    if isinstance(properties, dict) and not all(_PROPERTY.fullmatch(key) for key in properties):
        return "providers refuse the names of its arguments"
    return None


def tool_name(server: str, tool: str) -> str:
    """Return the name for the model, `mcp__SERVER__TOOL`: safe characters, at most 64.

    What had to be changed ends in a digest of the server's own name for it, so that two tools never share a name.
    """
    start = f"mcp__{server}__"
    room = NAME_CHARACTERS - len(start)
    safe = _UNSAFE.sub("_", tool)
    if safe == tool and len(tool) <= room:
        return start + tool
    digest = hashlib.sha256(tool.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{start}{safe[: room - 9]}_{digest}"


def clean_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema that every provider takes: an object at the top, bounded, its texts without hidden characters.

    One that is too large or too deep is replaced by one that says nothing.
    """
    anything: dict[str, Any] = {"type": "object", "properties": {}}
    if _is_deeper(schema, SCHEMA_DEPTH):
        return anything
    cleaned = clean_json(_shown(schema))
    if not isinstance(cleaned, dict) or len(orjson.dumps(cleaned)) > SCHEMA_BYTES:
        return anything
    top = {key: value for key, value in cleaned.items() if key not in _NOT_AT_TOP}
    properties = top.get("properties")
    return {**top, "type": "object", "properties": properties if isinstance(properties, dict) else {}}


def _shown(value: Any) -> Any:
    if isinstance(value, list):
        return [_shown(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: display(item, DESCRIPTION_CHARACTERS) if key in _SHOWN_KEYS and isinstance(item, str) else _shown(item)
        for key, item in value.items()
    }


def _is_deeper(value: object, depth: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    items = value.values() if isinstance(value, dict) else value
    return depth == 0 or any(_is_deeper(item, depth - 1) for item in items)
