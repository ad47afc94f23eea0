"""What a function says about its arguments: for the model before a call, and after one with wrong arguments."""

import inspect
import re
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

MAX_SHOWN = 80

_ARGUMENT = re.compile(r"(\w+)(?: \([^)]*\))?:\s*(.*)")
_LINE_BREAK = re.compile(r"(?<!\n)\n(?!\n)")  # one that ends no paragraph
_SECTION = re.compile(r"(Args|Returns|Raises|Yields|Example|Examples|Note):\s*")


def described(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """Return a function's docstring without its sections, and what its section Args says of each argument."""
    text: list[str] = []
    arguments: dict[str, str] = {}
    section = name = ""
    for line in (inspect.getdoc(function) or "").splitlines():
        if header := _SECTION.fullmatch(line):
            section = header[1]
        elif not section:
            text.append(line)
        elif section == "Args" and (start := _ARGUMENT.fullmatch(line.removeprefix("    "))):
            name = start[1]
            arguments[name] = start[2]
        elif section == "Args" and name and line.strip():
            arguments[name] += f" {line.strip()}"
    return _LINE_BREAK.sub(" ", "\n".join(text).strip()), arguments


def parameters_schema(model: type[BaseModel], descriptions: dict[str, str]) -> dict[str, Any]:
    """Return the JSON schema of a model's fields: no titles, an optional field as its plain type."""
    schema: dict[str, Any] = model.model_json_schema()
    properties = {name: _property(found) for name, found in schema.get("properties", {}).items()}
    for name, found in properties.items():
        if name in descriptions:
            found["description"] = descriptions[name]
    clean = {"type": "object", "properties": properties, "required": schema.get("required", [])}
    if "$defs" in schema:
        clean["$defs"] = {name: _property(found) for name, found in schema["$defs"].items()}
    return clean | {"additionalProperties": False}


def _property(schema: dict[str, Any]) -> dict[str, Any]:
    found = {key: value for key, value in schema.items() if key != "title" and (key, value) != ("default", None)}
    choices = [choice for choice in found.get("anyOf", []) if choice != {"type": "null"}]
    if len(choices) == 1:
        del found["anyOf"]
        found = choices[0] | found
    return found


def problems(error: ValidationError, schema: dict[str, Any]) -> str:
    """Return one line per wrong argument, and one that says what is expected."""
    lines = [f"- {_problem(detail)}" for detail in error.errors(include_url=False)]
    return "\n".join([*lines[:20], f"Expected: {expected(schema)}"])


def _problem(detail: ErrorDetails) -> str:
    where = ".".join(str(step) for step in detail["loc"]) or "arguments"
    if detail["type"] == "missing":
        return f"{where}: is missing"
    if detail["type"] == "extra_forbidden":
        return f"{where[:MAX_SHOWN]}: is no argument of this tool"
    return f"{where[:MAX_SHOWN]}: {detail['msg']}, not {_shown(detail['input'])}"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


def expected(schema: dict[str, Any]) -> str:
    """Return a schema's arguments in one line: `path (string), offset (integer, default 0)`."""
    required = schema["required"]
    return (
        ", ".join(
            f"{name} ({_kind(found)}{_default(found, name in required)})"
            for name, found in schema["properties"].items()
        )
        or "no arguments"
    )


def _kind(found: dict[str, Any]) -> str:
    if "enum" in found:
        return " | ".join(map(repr, found["enum"]))
    if "anyOf" in found:
        return " or ".join(_kind(choice) for choice in found["anyOf"])
    if found.get("type") == "array":
        return f"array of {_kind(found.get('items', {}))}"
    return str(found.get("type", "any"))


def _default(found: dict[str, Any], required: bool) -> str:
    if required:
        return ""
    return f", default {found['default']!r}" if "default" in found else ", optional"
