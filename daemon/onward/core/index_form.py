"""What a whole index and a whole question look like: files that only repeat what a journal says are believed so. Pure.

They can be damaged, half restored or edited by hand like any other file, and one that is not whole is simply made anew.
"""

from typing import TypeAlias

from onward.core.status import Status

Form: TypeAlias = "type | tuple[Form, ...] | list[Form] | dict[str, Form] | None"
"""A type, None, one of several forms, a list of items of one form, or an object with at least these members."""

_STATUSES = frozenset(map(str, Status))
_NUMBER: Form = (int, float)
_TEXT: Form = (str, None)
_TEXTS: Form = ([str], None)

_INDEX: Form = {
    "run_id": str,
    "kind": str,
    "agent": str,
    "task": str,
    "status": str,
    "turn": int,
    "totals": {
        "tokens_in": int,
        "tokens_out": int,
        "cost_usd": _NUMBER,
        "tool_calls": int,
        "revivals": int,
        "active_s": _NUMBER,
    },
    "parent": _TEXT,
    "workspace": str,
    "created_at": str,
    "updated_at": str,
    "last_progress_at": str,
    "stage": _TEXT,
    "questions": int,
    "wake_at": _TEXT,
    "waiting_on": _TEXT,
    "needs": _TEXT,
    "error": _TEXT,
    "result": _TEXT,
    "damage": int,
    "suspect": (bool, None),
    "idempotency_key": _TEXT,
    "journal": {"seq": int, "bytes": int, "checkpoint_offset": (int, None)},
}

_ASK: Form = {
    "form": _TEXT,
    "options": _TEXTS,
    "fields": ([{"name": str, "type": _TEXT, "options": _TEXTS}], None),
    "tool": _TEXT,
    "arguments": (dict, None),
    "why": _TEXT,
    "result": _TEXT,
    "text": _TEXT,
    "limits": (dict, None),
}

_QUESTION: Form = {
    "run_id": str,
    "interaction_id": str,
    "kind": str,
    "prompt": str,
    "options": [str],
    "binds_to": dict,
    "ask": _ASK,
    "asked_at": str,
    "expires_at": _TEXT,
    "agent": str,
    "advisory": bool,
}


def is_index(value: object, run_id: str) -> bool:
    """Whether this is an index of the run with all that it is used for, and its place in the journal."""
    return (
        isinstance(value, dict) and fits(value, _INDEX) and value["run_id"] == run_id and value["status"] in _STATUSES
    )


def are_questions(value: object, run_id: str) -> bool:
    """Whether this is a list of questions of the run, as they are shown."""
    return fits(value, [_QUESTION]) and isinstance(value, list) and all(item["run_id"] == run_id for item in value)


def is_ask(value: object) -> bool:
    """Whether this is what a question asks, in a form that can be shown."""
    return fits(value, _ASK)


def fits(value: object, form: Form) -> bool:
    """Whether a JSON value has a form. A member that is missing counts as None; truth is no number."""
    if isinstance(form, tuple):
        return any(fits(value, one) for one in form)
    if isinstance(form, list):
        return isinstance(value, list) and all(fits(item, form[0]) for item in value)
    if isinstance(form, dict):
        return isinstance(value, dict) and all(fits(value.get(name), member) for name, member in form.items())
    return value is None if form is None else type(value) is form
