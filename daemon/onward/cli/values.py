"""What a person types, as the answer that a question wants. Pure: what it cannot be is said by an error."""

import json
from collections.abc import Sequence
from typing import Any

from onward.core.interactions import DECISIONS
from onward.errors import BadRequest

Json = dict[str, Any]

_YES = {"yes": True, "y": True, "true": True, "no": False, "n": False, "false": False}
_APPROVED = {"damage": "go_on", "restart": "resume"}
_DENIED = {"checkpoint": "reject", "permission": "deny", "damage": "give_up", "restart": "stop"}


def answer_of(question: Json, words: Sequence[str]) -> Json:
    """Return the answer that VALUE is to a question."""
    kind, ask = question["kind"], question.get("ask") or {}
    if kind == "budget":
        return {"add": {name: _number(name, text) for name, text in _pairs(words).items()}}
    if kind == "ask" and ask.get("form") == "form":
        return {"value": _filled_in(ask.get("fields") or [], words)}
    if len(words) != 1:
        raise BadRequest("the answer is one word or text; put it in quotes")
    if kind in DECISIONS:
        return _decision(question, words[0].strip())
    if kind == "edit":
        return {"text": words[0]}
    options = ask.get("options") or []
    if ask.get("form") == "choice":
        return {"value": chosen(options, words[0])}
    if ask.get("form") == "multi":
        return {"value": several(options, words[0])}
    return {"value": words[0]}


def approval(question: Json, *, edit: str | None = None, always: bool = False) -> Json:
    """Return the answer that `approve` is, with a text or arguments instead of what was shown."""
    kind = question["kind"]
    if kind not in DECISIONS:
        raise BadRequest(_wants_value(question))
    if always and kind != "permission":
        raise BadRequest(f"--always is for a permission, and {question['interaction_id']} is a {kind}")
    if edit is not None and kind not in ("checkpoint", "permission"):
        raise BadRequest(f"--edit is for a checkpoint or a permission, and {question['interaction_id']} is a {kind}")
    if kind == "checkpoint" and edit is not None:
        return {"decision": "edit", "text": edit}
    answer: Json = {"decision": _APPROVED.get(kind, "approve")}
    if edit is not None:
        answer["arguments"] = arguments_of(edit)
    if always:
        answer["always"] = True
    return answer


def denial(question: Json, reason: str | None) -> Json:
    """Return the answer that `deny` is."""
    kind, which = question["kind"], question["interaction_id"]
    if kind not in DECISIONS:
        raise BadRequest(_wants_value(question))
    if kind == "review":
        if not reason:
            raise BadRequest(f"{which} asks for a review: say what is wrong with --reason")
        return {"decision": "comment", "text": reason}
    if reason and kind not in ("checkpoint", "permission"):
        raise BadRequest(f"{which} is a {kind}: it takes no --reason")
    return {"decision": _DENIED[kind], **({"reason": reason} if reason else {})}


def arguments_of(text: str) -> Json:
    """Return the edited arguments of a call."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise BadRequest(f"the edited arguments are not JSON: {error}") from None
    if not isinstance(value, dict):
        raise BadRequest("the edited arguments are a JSON object")
    return value


def chosen(options: Sequence[str], text: str) -> str:
    """Return the option that a text or a number (from 1) names."""
    text = text.strip() if text not in options else text
    if text in options:
        return text
    if text.isascii() and text.isdigit() and 0 < int(text) <= len(options):
        return options[int(text) - 1]
    raise BadRequest(f"{text[:80]!r} is none of: " + ", ".join(f"{n} {o}" for n, o in enumerate(options, 1)))


def several(options: Sequence[str], text: str) -> list[str]:
    """Return the options that a list with commas, or a JSON list, names."""
    if text.strip() in options:
        return [text.strip()]
    names = text.split(",")
    if text.lstrip().startswith("["):
        names = [str(item) for item in _json(text, list)]
    return list(dict.fromkeys(chosen(options, name) for name in names if name.strip()))


def field_value(field: Json, text: str) -> Any:
    """Return what was typed for one field of a form."""
    kind = field.get("type", "text")
    if kind == "number":
        return _number(str(field.get("name")), text)
    if kind == "boolean":
        if text.strip().lower() not in _YES:
            raise BadRequest(f"the field {field.get('name')!r} is yes or no, not {text[:40]!r}")
        return _YES[text.strip().lower()]
    return chosen(field.get("options") or [], text) if kind == "choice" else text


def _filled_in(fields: Sequence[Json], words: Sequence[str]) -> Json:
    if len(words) == 1 and words[0].lstrip().startswith("{"):
        return dict(_json(words[0], dict))
    known = {str(field.get("name")): field for field in fields}
    given = _pairs(words)
    wrong = [f"no such field: {name}" for name in given if name not in known]
    wrong += [f"missing: {name}" for name in known if name not in given]
    if wrong:
        raise BadRequest(f"the form has the fields {', '.join(known)}; {'; '.join(wrong)}")
    return {name: field_value(known[name], text) for name, text in given.items()}


def _pairs(words: Sequence[str]) -> dict[str, str]:
    pairs = [word.partition("=") for word in words]
    if not pairs or not all(name and sign for name, sign, _ in pairs):
        raise BadRequest("this is answered by NAME=VALUE, once or several times")
    return {name: text for name, _, text in pairs}


def _number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise BadRequest(f"{name!r} is a number, not {text[:40]!r}") from None
    if value != value or value in (float("inf"), float("-inf")):  # NaN
        raise BadRequest(f"{name!r} is a number, not {text[:40]!r}")
    return int(value) if value.is_integer() and "." not in text else value


def _decision(question: Json, word: str) -> Json:
    words = DECISIONS[question["kind"]]
    if word not in words:
        raise BadRequest(f"{question['interaction_id']} is answered by {', '.join(words)}, not by {word[:40]!r}")
    if word in ("edit", "comment"):
        raise BadRequest("that needs a text: onward approve --edit FILE, or onward deny --reason COMMENT")
    return {"decision": word}


def _json(text: str, kind: type) -> Any:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise BadRequest(f"this looks like JSON, but is none: {error}") from None
    if not isinstance(value, kind):
        raise BadRequest("this is JSON of another kind than is wanted")
    return value


def _wants_value(question: Json) -> str:
    from onward.cli.asked import how_to_answer

    (command,) = how_to_answer(question)
    return f"{question['interaction_id']} cannot just be approved or denied: {command}"
