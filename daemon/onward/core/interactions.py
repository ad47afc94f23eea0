"""Durable questions to a human: what can be asked, and what counts as an answer. Pure."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import orjson

from onward.core.text import clean_json, display
from onward.errors import BadRequest

Json = dict[str, Any]


class Kind(StrEnum):
    """What a question is about; each kind has its own form of answer (see `checked`)."""

    CHECKPOINT = "checkpoint"
    ASK = "ask"
    REVIEW = "review"
    EDIT = "edit"
    PERMISSION = "permission"
    BUDGET = "budget"
    DAMAGE = "damage"
    RESTART = "restart"


DECISIONS: dict[str, tuple[str, ...]] = {
    Kind.CHECKPOINT: ("approve", "edit", "reject"),
    Kind.REVIEW: ("approve", "comment"),
    Kind.PERMISSION: ("approve", "deny"),
    Kind.DAMAGE: ("go_on", "give_up"),
    Kind.RESTART: ("resume", "stop"),
}


@dataclass(slots=True, kw_only=True)
class Interaction:
    """One question. `binds_to` names what it is about, so that it can never answer for anything else.

    `ask` holds what the kind needs: for `ask` its form (text, choice, multi, form) and fields, for `edit` the text.
    """

    interaction_id: str
    kind: str
    prompt: str
    options: list[str]
    binds_to: Json
    ask: Json
    opened_seq: int
    asked_at: str
    expires_at: str | None = None
    answer: Json | None = None
    answered_by: str | None = None
    closed: str | None = None

    @property
    def is_open(self) -> bool:
        return self.answer is None and self.closed is None

    @property
    def decision(self) -> str | None:
        return str(self.answer["decision"]) if self.answer and "decision" in self.answer else None


FIELD_TYPES: dict[str, tuple[type, ...]] = {
    "text": (str,),
    "number": (int, float),
    "boolean": (bool,),
    "choice": (str,),
}
"""What a field of a form can be; a choice is one of its options."""


def checked(interaction: Interaction, answer: Json) -> Json:
    """Return an answer in the form in which it is journaled.

    Raises:
        BadRequest: It does not answer this question; the message says what would.
    """
    given = clean_json(answer)
    if not isinstance(given, dict):
        raise BadRequest("an answer is a JSON object")
    kind = interaction.kind
    if kind in DECISIONS:
        return _decision(interaction, given)
    if kind == Kind.ASK:
        return {"value": _value(interaction.ask, given.get("value"))}
    if kind == Kind.EDIT:
        return {"text": _text(given, "text")}
    if kind == Kind.BUDGET:
        return _budget(given)
    raise BadRequest(f"a question of kind {kind!r} cannot be answered by this version")


def winner(interaction: Interaction) -> str:
    """Say how a question was answered, to somebody who answers it otherwise."""
    answer = orjson.dumps(interaction.answer).decode()
    return f"{interaction.interaction_id} was answered already, by {interaction.answered_by}: {display(answer)}"


def as_text(interaction: Interaction) -> str:
    """Return what the model is told of the answer."""
    answer = interaction.answer or {}
    if interaction.kind == Kind.EDIT:
        return str(answer.get("text", ""))
    if interaction.kind == Kind.REVIEW:
        comment = answer.get("text")
        return f"commented: {comment}" if answer.get("decision") == "comment" else "approved"
    value = answer.get("value")
    if isinstance(value, list):
        return "\n".join(str(item) for item in value)
    if isinstance(value, dict):
        return "\n".join(f"{name}: {item}" for name, item in value.items())
    return str(value)


def _decision(interaction: Interaction, given: Json) -> Json:
    words = DECISIONS[interaction.kind]
    decision = given.get("decision")
    if decision not in words:
        raise BadRequest(f"the question {interaction.interaction_id} is answered by {', '.join(words)}")
    answer: Json = {"decision": decision}
    if decision in ("edit", "comment"):
        answer["text"] = _text(given, "text")
    if decision in ("reject", "deny") and given.get("reason") is not None:
        answer["reason"] = _text(given, "reason")
    if interaction.kind == Kind.PERMISSION and decision == "approve":
        if given.get("arguments") is not None:
            if not isinstance(given["arguments"], dict):
                raise BadRequest("edited arguments are a JSON object")
            answer["arguments"] = given["arguments"]
        if given.get("always"):
            answer["always"] = True
    return answer


def _text(given: Json, name: str) -> str:
    text = given.get(name)
    if not isinstance(text, str) or not text.strip():
        raise BadRequest(f"{name!r} is missing or blank")
    return text


def _value(ask: Json, value: Any) -> Any:
    form = ask.get("form", "text")
    options = ask.get("options", [])
    if form == "text":
        return _text({"value": value}, "value")
    if form == "choice":
        return _one_of(options, value)
    if form == "multi":
        if not isinstance(value, list) or not value:
            raise BadRequest(f"choose one or more of: {', '.join(options)}")
        return [_one_of(options, item) for item in value]
    return _form(ask.get("fields", []), value)


def _one_of(options: list[str], value: Any) -> str:
    if value not in options:
        raise BadRequest(f"{value!r} is none of: {', '.join(options)}")
    return str(value)


def _form(fields: list[Json], value: Any) -> Json:
    if not isinstance(value, dict):
        raise BadRequest(f"fill in: {', '.join(str(f.get('name')) for f in fields)}")
    unknown = set(value) - {f.get("name") for f in fields}
    if unknown:
        raise BadRequest(f"no such field: {', '.join(sorted(unknown))}")
    return {str(f["name"]): _field(f, value.get(f["name"])) for f in fields}


def _field(wanted: Json, value: Any) -> Any:
    name, kind = wanted["name"], wanted.get("type", "text")
    if kind == "choice":
        return _one_of(wanted.get("options", []), value)
    if type(value) not in FIELD_TYPES.get(kind, (str,)):
        raise BadRequest(f"the field {name!r} is a {kind}")
    return value


def _budget(given: Json) -> Json:
    add = given.get("add")
    if not isinstance(add, dict) or not add:
        raise BadRequest('a budget is extended by {"add": {"cost_usd": 5}} or other limits')
    return {"add": add}
