"""What of a question a person sees: what is asked, what will run, how to answer. Everything foreign is escaped here."""

import json
from collections.abc import Iterator
from typing import Any

from onward.cli.terminal import age, line, out, paint
from onward.core.index_form import is_ask
from onward.core.permissions import grant_for
from onward.core.text import display, without_gaps

Json = dict[str, Any]

INDENT = "    "
BAR = f"{INDENT}│ "
SHORT_LINES = 12
_WHOLE = 1 << 40


def show(question: Json, *, whole: bool = True) -> None:
    """Print one question and how to answer it. What will run is always whole; long documents only where asked."""
    marks = [line(question["interaction_id"], 20), line(question["run_id"], 64), line(question["kind"], 20)]
    head = "  ".join([paint(marks[0], "strong"), *marks[1:], age(question.get("asked_at"))])
    advisory = paint("advisory", "warn") if question.get("advisory") else ""
    out("  ".join(part for part in (head, advisory) if part))
    for shown in asked(question, whole=whole):
        out(shown)
    if question.get("expires_at"):
        out(f"{INDENT}it expires at {line(question['expires_at'], 40)} and then counts as denied")
    for command in how_to_answer(question):
        out(f"{INDENT}{paint(command, 'dim')}")


def asked(question: Json, *, whole: bool = True) -> Iterator[str]:
    """Yield the lines that say what is asked, escaped."""
    ask = question.get("ask") or {}
    if not is_ask(ask):
        yield f"{INDENT}what is asked is ill-formed and cannot be shown; --json shows it"
        return
    if question["kind"] == "permission":
        yield f"{INDENT}May the run do this?"
        yield from will_run(ask)
        return
    first, *more = escaped(str(question["prompt"])).split("\n")
    yield f"{INDENT}{first}"
    yield from (f"{BAR}{each}" for each in more)
    for number, option in enumerate(ask.get("options") or [], 1):
        yield f"{INDENT}{number}. {line(option, 400)}"
    for field in ask.get("fields") or []:
        yield f"{INDENT}{_field(field)}"
    document = ask.get("result", ask.get("text"))
    if isinstance(document, str):
        yield from _document(document, whole, question)


def will_run(ask: Json) -> Iterator[str]:
    """Yield the whole of what will run, in its escaped form: nothing is left out, no padding hides the rest."""
    arguments = ask.get("arguments") if isinstance(ask.get("arguments"), dict) else {}
    yield f"{INDENT}{paint(line(ask.get('tool'), 200), 'strong')}"
    for name, value in (arguments or {}).items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        first, *more = escaped(text).split("\n")
        yield f"{BAR}{escaped(str(name))}: {first}"
        yield from (f"{BAR}  {each}" for each in more)
    yield f"{INDENT}why: {line(ask.get('why', '?'), 400)}"


def escaped(text: str) -> str:
    """Return foreign text, whole and escaped, with long gaps counted instead of shown."""
    return display(without_gaps(text), _WHOLE)


def grant(question: Json) -> str:
    """Say what "always" would allow."""
    ask = question.get("ask") or {}
    made = grant_for(str(ask.get("tool")), ask.get("arguments") or {})
    tool = line(made["tool"], 60)
    if "prefix" in made:
        return f"{tool}: every simple command that begins with {escaped(made['prefix'])}"
    return f"{tool}: exactly this command" if "command" in made else f"{tool}: every call"


def _field(field: Json) -> str:
    kind = field.get("type", "text")
    options = f" of {', '.join(line(o, 100) for o in field.get('options') or [])}" if kind == "choice" else ""
    return f"{line(field.get('name'), 60)} ({line(kind, 20)}{options})"


def _document(text: str, whole: bool, question: Json) -> Iterator[str]:
    shown = display(text.strip("\n"), _WHOLE).split("\n")
    cut = [] if whole else shown[SHORT_LINES:]
    yield from (f"{BAR}{each}" for each in (shown if whole else shown[:SHORT_LINES]))
    if cut:
        yield f"{INDENT}({len(cut)} more lines: onward questions {line(question.get('run_id', 'RUN'), 64)})"


def how_to_answer(question: Json) -> list[str]:
    """Return the commands that answer a question."""
    name = f"{line(question['run_id'], 64)} {line(question['interaction_id'], 20)}"
    kind, form = question["kind"], (question.get("ask") or {}).get("form")
    yes, no = f"onward approve {name}", f"onward deny {name}"
    if kind == "checkpoint":
        return [f"{yes} [--edit FILE]", f"{no} [--reason R]"]
    if kind == "permission":
        return [f"{yes} [--always | --edit FILE]", f"{no} [--reason R]"]
    if kind == "review":
        return [yes, f"{no} --reason COMMENT"]
    if kind in ("damage", "restart"):
        return [yes, no]
    values = {"choice": "OPTION", "multi": "OPTION,OPTION", "form": "NAME=VALUE ..."}
    value = {"budget": "LIMIT=MORE", "edit": "--file FILE"}.get(kind) or values.get(str(form), "TEXT")
    return [f"onward answer {name} {value}"]


def in_words(answer: Any) -> str:
    """Return an answer as a person says it."""
    given = answer if isinstance(answer, dict) else {}
    extra = given.get("reason") or given.get("text")
    if "decision" in given:
        more = f" with {json.dumps(given['arguments'], ensure_ascii=False)}" if "arguments" in given else ""
        always = ", always" if given.get("always") else ""
        return f"{given['decision']}{always}{more}" + (f": {extra}" if extra else "")
    value = given.get("value", given.get("add", given.get("text")))
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, dict):
        return ", ".join(f"{name}={item}" for name, item in value.items())
    return str(value)
