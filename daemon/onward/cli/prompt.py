"""A question asked on the terminal, where somebody follows the run. There is no default: an empty line answers nothing.

Ctrl-C detaches as anywhere, `s` or Ctrl-D leaves the question for later.
"""

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from onward.cli import values
from onward.cli.answers import post, read, told
from onward.cli.asked import grant, show
from onward.cli.client import Client
from onward.cli.terminal import line, out, paint, say
from onward.errors import BadRequest, Conflict, NotFound, Unreachable

Json = dict[str, Any]

_KEYS = {
    "checkpoint": {"a": "approve", "e": "edit", "r": "reject"},
    "permission": {"a": "approve", "always": "approve always", "e": "edit", "r": "deny"},
    "review": {"a": "approve", "c": "comment"},
    "damage": {"a": "go on", "r": "give up"},
    "restart": {"a": "resume", "r": "stop"},
}
_REASON = frozenset({"checkpoint", "permission"})


class _Later(Exception):  # nothing went wrong
    """The question is left open."""


def is_possible() -> bool:
    """Say whether somebody looks and can type."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def ask(client: Client, question: Json) -> bool:
    """Show a question and take its answer; False when it is left for later.

    True does not say whose answer counts: somebody else may have been quicker.
    """
    out()
    show(question)
    if question["kind"] == "permission":
        out(f"    {paint(f'always allows {grant(question)}', 'dim')}")
    while True:
        try:
            given = _answer(question)
            say(told(question, given, post(client, question, given)))
        except _Later:
            return False
        except BadRequest as error:
            say(str(error))
            continue
        except Unreachable as error:
            say(f"not answered: {error}")
            continue
        except (Conflict, NotFound) as error:
            say(str(error))
        return True


def _answer(question: Json) -> Json:
    kind = question["kind"]
    if kind in _KEYS:
        return _decision(question, _KEYS[kind])
    if kind == "edit":
        key = _choose({"e": "edit", "a": "leave it as it is"})
        text = str(question["ask"].get("text", ""))
        return {"text": edited(text) if key == "e" else text}
    if kind == "budget":
        limits = ", ".join(f"{name} {value}" for name, value in (question["ask"].get("limits") or {}).items() if value)
        return values.answer_of(question, shlex.split(_type(f"limits: {line(limits)}\nmore, as NAME=NUMBER; s skips")))
    form = question["ask"].get("form")
    if form == "form":
        return {"value": {str(field["name"]): _field(field) for field in question["ask"].get("fields") or []}}
    if form in ("choice", "multi"):
        hint = "a number or an option; s skips" if form == "choice" else "numbers or options, with commas; s skips"
        return values.answer_of(question, [_type(hint, question["ask"].get("options") or [])])
    text = _type("your answer; e opens an editor, s skips")
    return {"value": edited("") if text == "e" else text}


def _decision(question: Json, keys: dict[str, str]) -> Json:
    key = _choose(keys)
    if key == "a" or key == "always":
        return values.approval(question, always=key == "always")
    if key == "e":
        return values.approval(question, edit=_edited(question))
    reason = None
    if key == "c" or question["kind"] in _REASON:
        reason = _line("why (may be left empty): " if key == "r" else "comment: ").strip() or None
    return values.denial(question, reason)


def _edited(question: Json) -> str:
    ask = question["ask"]
    if question["kind"] == "checkpoint":
        return edited(str(ask.get("result", "")))
    import json

    return edited(json.dumps(ask.get("arguments"), indent=2, ensure_ascii=False), suffix=".json")


def _field(field: Json) -> Any:
    name, kind = line(field.get("name"), 60), line(field.get("type", "text"), 20)
    while True:
        try:
            return values.field_value(field, _type(f"{name} ({kind}); s skips all"))
        except BadRequest as error:
            say(str(error))


def _choose(keys: dict[str, str]) -> str:
    offered = "  ".join(f"[{key}] {meaning}" if key != "always" else "[always]" for key, meaning in keys.items())
    while True:
        key = _type(f"{offered}  [s] skip")
        if key in keys:
            return key
        say(f"one of {', '.join(keys)}, s; Ctrl-C leaves the run to itself")


def _type(hint: str, options: list[str] | tuple[str, ...] = ()) -> str:
    """Return a line that is not blank. `s` skips, unless it is an option."""
    say(hint)
    while True:
        text = _line("> ").strip()
        if text == "s" and text not in options:
            raise _Later
        if text:
            return text


def _line(before: str, source: Callable[[str], str] = input) -> str:
    import readline  # noqa: F401  # makes the line editable

    try:
        return source(before)
    except EOFError:
        out()
        raise _Later from None


def edited(text: str, suffix: str = ".md") -> str:
    """Return a text as it is after the person's editor has ended.

    Raises:
        BadRequest: It was not changed, is blank, or the editor failed.
    """
    command = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
    with tempfile.TemporaryDirectory(prefix="onward-") as directory:
        file = Path(directory) / f"answer{suffix}"
        file.write_text(text, encoding="utf-8")
        try:
            done = subprocess.run([*command, str(file)], check=False)
        except OSError as error:
            raise BadRequest(f"the editor {command[0]!r} cannot be started ({error.strerror}); set EDITOR") from None
        after = read(file)
    if done.returncode != 0:
        raise BadRequest(f"the editor ended with {done.returncode}; nothing was answered")
    if after == text or not after.strip():
        raise BadRequest("nothing was changed, so nothing was answered")
    return after
