"""What people do to a run, as records: each act decided from the run's state at the moment of writing. Pure.

An act that was done before is no record at all, and the same success; one that the state does not allow is a Conflict.
"""

from onward.core.bounds import MOST
from onward.core.fold_work import text_mark
from onward.core.inspection import by_hand
from onward.core.interactions import Interaction, Kind
from onward.core.permissions import grant_for
from onward.core.records import (
    CancelRequested,
    InteractionAnswered,
    Json,
    MessageAdded,
    Record,
    RunEnded,
    RunPaused,
    RunResumed,
    SettingsChanged,
)
from onward.core.state import RunState
from onward.core.status import TERMINAL, Status
from onward.core.vocabulary import Needs, Source
from onward.errors import BadRequest, Conflict


def said(state: RunState, text: str, *, message_id: str, by: str) -> list[Record]:
    """Say something; the same id is the same message."""
    known = state.messages.get(message_id)
    if known is not None and known != text_mark(text):
        raise Conflict(f"the message id {message_id!r} was used for another text")
    if known is not None:
        return []
    _must_live(state)
    return [MessageAdded(message_id=message_id, source=Source.HUMAN, content=text, by=by)]


def paused(state: RunState, *, by: str, reason: str) -> list[Record]:
    """Let the run begin nothing new."""
    _must_live(state)
    return [] if state.status is Status.PAUSED else [RunPaused(by=by, reason=reason or f"paused by {by}")]


def resumed(state: RunState, *, by: str, add: Json) -> list[Record]:
    """Let the run go on; `add` raises its limits, whatever it does."""
    _must_live(state)
    if state.status is Status.QUARANTINED or state.needs == Needs.DECISION:
        raise Conflict(f"{state.run_id} is {state.status}: {state.reason}; resuming does not mend that")
    records: list[Record] = []
    if add:
        records.append(SettingsChanged(by=by, limits=_raised(state, add)))
    if state.status is not Status.ACTIVE or state.cooling:
        records.append(RunResumed(by=by, reason=f"resumed by {by}"))
    return records


def cancelled(state: RunState, *, by: str) -> list[Record]:
    """Ask for the run's end."""
    if state.status is Status.CANCELLED or state.cancel_by is not None:
        return []
    _must_live(state)
    return [CancelRequested(by=by)]


def answered(state: RunState, question: Interaction, answer: Json, *, by: str) -> list[Record]:
    """Answer a question: none where it has an answer, whichever; the first one counts."""
    if question.answer is not None:
        return []
    if question.closed is not None:
        raise Conflict(f"{question.interaction_id} is no longer open: {question.closed}")
    _must_live(state)
    return _carried_out(state, question, answer, by)


def _carried_out(state: RunState, question: Interaction, answer: Json, by: str) -> list[Record]:
    """Return an answer with what it changes at once, in one write; the rest is carried out by the run.

    The answer comes last, so that one of which only a part reached the disk can be given again. An end stays the end.
    """
    last = InteractionAnswered(interaction_id=question.interaction_id, answer=answer, by=by)
    if question.kind == Kind.BUDGET:
        going = [RunResumed(by=by, reason="the budget was extended")] if state.status is Status.PARKED else []
        return [SettingsChanged(by=by, limits=_raised(state, answer["add"])), *going, last]
    if question.kind == Kind.PERMISSION and answer.get("always"):
        arguments = answer["arguments"] if "arguments" in answer else question.ask["arguments"]
        grant = grant_for(question.ask["tool"], arguments)
        return [SettingsChanged(by=by, limits=state.limits, grants=[*state.grants, grant]), last]
    if question.kind == Kind.DAMAGE and answer["decision"] == "go_on":
        return [*by_hand(state, by), last]
    if question.kind == Kind.DAMAGE:
        return [last, RunEnded(status=Status.FAILED, reason=f"given up by {by} after damage", by=by)]
    return [last]


def _must_live(state: RunState) -> None:
    if state.status in TERMINAL or state.cancel_by is not None:
        raise Conflict(f"{state.run_id} is over ({state.status}: {state.reason or 'a cancel was asked'})")


def _raised(state: RunState, add: Json) -> Json:
    limits = dict(state.limits)
    for name, more in add.items():
        if name not in limits:
            raise Conflict(f"{state.run_id} has no limit {name!r} that could be raised")
        if not isinstance(more, int | float) or isinstance(more, bool) or more <= 0:
            raise BadRequest(f"the limit {name!r} can be raised by a positive number, not by {more!r}")
        if not limits[name] + more <= MOST:
            raise BadRequest(f"the limit {name!r} cannot be raised that far; no limit is above {MOST}")
        limits[name] += more
    return limits
