"""What stands between a call and its start: a human who is the tool, or who is asked for permission. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import orjson

from onward.core.budget import over_limit
from onward.core.conversation import CallState
from onward.core.interactions import FIELD_TYPES, Interaction, Kind, as_text
from onward.core.permissions import Permission, Then, grant_for, permitted
from onward.core.records import InteractionOpened, Json, Record, ToolCallDone
from onward.core.state import RunState
from onward.core.text import display, without_gaps
from onward.core.vocabulary import Effect, Outcome, SettledBy

HUMAN_TOOLS = {"ask_user": Kind.ASK, "present_for_review": Kind.REVIEW, "edit_document": Kind.EDIT}
SHOWN = 100_000


@dataclass(slots=True)
class Gates:
    """What is to be written now, and which calls may not start (`held`) or start with edited arguments."""

    records: list[Record] = field(default_factory=list)
    held: set[str] = field(default_factory=set)
    edited: dict[str, Json] = field(default_factory=dict)


def look(state: RunState) -> Gates:
    """Look at every call of the newest batch that has not been handed over."""
    gates = Gates()
    opened = len(state.interactions)
    over = over_limit(state, state.calls, state.totals.tool_calls)
    for call in state.open_calls:
        if (limit := over.get(call.call_id)) is not None:
            text = f"[error] not started: {limit}. It did not run and had no effect"
            gates.records.append(_done(call, Outcome.NOT_STARTED, text, SettledBy.POLICY, limit))
            gates.held.add(call.call_id)
            continue
        if call.started or isinstance(call.arguments, str) or not state.allows(call.name):
            continue
        question = question_of(state, call)
        step = _human(call, question, opened) if call.name in HUMAN_TOOLS else _asked(state, call, question, opened)
        if isinstance(step, InteractionOpened):
            opened += 1
        if isinstance(step, Record):
            gates.records.append(step)
        if step is not None:
            gates.held.add(call.call_id)
        elif question is not None and question.answer and "arguments" in question.answer:
            gates.edited[call.call_id] = question.answer["arguments"]
    return gates


def may_hold(state: RunState, names: Iterable[str]) -> bool:
    """Whether one of these calls may have to wait for a human or be denied: then `look` has to be asked first."""
    stage = state.stage
    rules = stage.permissions if stage and stage.permissions is not None else state.agent.get("permissions")
    return any(name in HUMAN_TOOLS or (isinstance(rules, dict) and name in rules) for name in names)


def callable_now(calls: list[CallState], workers: int, held: frozenset[str] = frozenset()) -> list[CallState]:
    """Return the calls of a batch that can be handed over now, in model order.

    Calls that only read run side by side, up to `workers`; any other call waits for all before it and runs alone, so
    that what it changes happens in the order the model asked for. `held` are those that wait for a human.
    """
    running = [call for call in calls if call.started and call.outcome is None]
    ready: list[CallState] = []
    waiting = False  # a call that changes something waits for a human: others of its kind keep their place behind it
    for call in calls:
        if call.outcome is not None or call.started:
            continue
        busy = len(running) + len(ready)
        if call.call_id in held:
            if call.effect != Effect.READ:
                waiting = True
            continue
        if call.effect != Effect.READ:
            return ready if busy or waiting else [call]
        if busy >= workers or any(other.effect != Effect.READ for other in running):
            return ready
        ready.append(call)
    return ready


def question_of(state: RunState, call: CallState) -> Interaction | None:
    """Return the question that was asked about a call: about this one, with these arguments."""
    binding = binding_of(call)
    return next((item for item in state.interactions.values() if item.binds_to == binding), None)


def binding_of(call: CallState) -> Json:
    data = orjson.dumps(call.arguments, option=orjson.OPT_SORT_KEYS)
    return {"call_id": call.call_id, "arguments": sha256(data).hexdigest()}


_HELD = object()


def _human(call: CallState, question: Interaction | None, opened: int) -> Any:
    if question is None:
        asked = _question(call)
        if isinstance(asked, str):
            return _done(call, Outcome.ERROR, f"[error] {asked}, so nobody was asked", SettledBy.POLICY, "not asked")
        prompt, options, ask = asked
        kind = HUMAN_TOOLS[call.name]
        return _opened(call, kind, prompt, options, ask, opened)
    if question.is_open:
        return _HELD
    if question.answer is None:
        return _done(call, Outcome.DENIED, f"[error] not answered: {question.closed}", SettledBy.POLICY, "expired")
    return _done(call, Outcome.OK, as_text(question), SettledBy.HUMAN, f"answered by {question.answered_by}")


def _asked(state: RunState, call: CallState, question: Interaction | None, opened: int) -> Any:
    """None: it may start."""
    arguments = call.arguments if isinstance(call.arguments, dict) else {}
    allowed = permission(state, call.name, arguments)
    if allowed.then is Then.DENY:
        text = f"[error] denied by {allowed.reason}; it did not run"
        return _done(call, Outcome.DENIED, text, SettledBy.POLICY, allowed.reason)
    if question is not None:
        return _answered(call, question)
    if allowed.then is Then.ALLOW:
        return None
    prompt = f"May the run do this? {call.name} {display(without_gaps(orjson.dumps(arguments).decode()), SHOWN)}"
    ask = {
        "tool": call.name,
        "arguments": arguments,
        "why": allowed.reason,
        "always": grant_for(call.name, arguments),
    }
    return _opened(call, Kind.PERMISSION, prompt, ["approve", "deny"], ask, opened)


def _answered(call: CallState, question: Interaction) -> Any:
    if question.is_open:
        return _HELD
    if question.decision == "approve":
        return None
    if question.answer is None:
        text = f"[error] denied, for nobody answered: {question.closed}; it did not run"
        return _done(call, Outcome.DENIED, text, SettledBy.POLICY, "expired")
    text = f"[error] denied by a human: {question.answer.get('reason') or 'no reason given'}; it did not run"
    return _done(call, Outcome.DENIED, text, SettledBy.HUMAN, f"denied by {question.answered_by}")


def permission(state: RunState, tool: str, arguments: Json) -> Permission:
    """Return what the rules of the stage (else of the definition) and the run's grants say."""
    stage = state.stage
    rules = stage.permissions if stage and stage.permissions is not None else state.agent.get("permissions")
    own = rules.get(tool, []) if isinstance(rules, dict) else []
    return permitted(tool, arguments, own, state.grants, state.workspace)


def _question(call: CallState) -> tuple[str, list[str], Json] | str:
    """Return (prompt, options, ask) of a human tool's arguments, or what is wrong with them."""
    given = call.arguments if isinstance(call.arguments, dict) else {}
    if call.name == "ask_user":
        return _form_of(given)
    title, text = given.get("title"), given.get("text")
    if not isinstance(title, str) or not isinstance(text, str) or not text.strip():
        return "'title' and 'text' are needed"
    options = ["approve", "comment"] if call.name == "present_for_review" else []
    return title, options, {"title": title, "text": text}


def _form_of(given: Json) -> tuple[str, list[str], Json] | str:
    question, form, options = given.get("question"), given.get("kind", "text"), given.get("options") or []
    if not isinstance(question, str) or not question.strip():
        return "'question' is needed"
    if form in ("choice", "multi"):
        if not _are_texts(options):
            return f"'options' are needed for kind {form!r}"
        return question, list(options), {"form": form, "options": options}
    if form == "form":
        if not _are_fields(options):
            return "a form needs 'options': its fields, each with its own name, a type and for a choice its options"
        return question, [], {"form": form, "fields": options}
    return (question, [], {"form": "text"}) if form == "text" else f"there is no kind {form!r} of question"


def _are_texts(options: Any) -> bool:
    return isinstance(options, list) and bool(options) and all(isinstance(option, str) for option in options)


def _are_fields(fields: Any) -> bool:
    if not isinstance(fields, list) or not all(isinstance(item, dict) for item in fields):
        return False
    kinds = [item.get("type", "text") for item in fields]
    fit = all(kind in FIELD_TYPES for kind in kinds)
    fit = fit and all(_are_texts(f.get("options")) for f, kind in zip(fields, kinds, strict=True) if kind == "choice")
    names = [item.get("name") for item in fields]
    return fit and _are_texts(names) and len(set(names)) == len(names)


def _opened(call: CallState, kind: Kind, prompt: str, options: list[str], ask: Json, opened: int) -> InteractionOpened:
    return InteractionOpened(
        interaction_id=f"q{opened + 1}",
        kind=kind,
        prompt=prompt,
        options=options,
        binds_to=binding_of(call),
        ask=ask,
    )


def _done(call: CallState, outcome: Outcome, text: str, by: SettledBy, reason: str) -> ToolCallDone:
    return ToolCallDone(
        call_id=call.call_id,
        outcome=outcome,
        result=text,
        is_error=outcome is not Outcome.OK,
        settled_by=by,
        duration_s=0.0,
        reason=reason,
    )
