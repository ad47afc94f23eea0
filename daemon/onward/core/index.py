"""The index of a run (meta.json): what `ps` shows. A cache, always derivable from the state. Pure."""

from typing import Any

from onward.core.daemon_facts import is_suspect
from onward.core.records import Json
from onward.core.state import RunState
from onward.core.status import TERMINAL, Status
from onward.core.step import waits_for_human

SHORT = 200


def index_of(state: RunState, *, stalled: str | None = None) -> Json:
    """Return the index of a run.

    Args:
        state: As folded.
        stalled: Its journal cannot be written at the moment, and why (the disk).
    """
    status, waiting_on, needs, error = _shown(state, stalled)
    return {
        "run_id": state.run_id,
        "kind": state.kind,
        "agent": state.agent_name,
        "task": state.task[:SHORT],
        "status": status,
        "turn": state.turns,
        "totals": {
            "tokens_in": state.totals.tokens_in,
            "tokens_out": state.totals.tokens_out,
            "cost_usd": round(state.totals.cost_usd, 6),
            "tool_calls": state.totals.tool_calls,
            "revivals": state.totals.revivals,
            "active_s": state.totals.active_s,
        },
        "parent": state.parent,
        "workspace": state.workspace,
        "created_at": state.created_at,
        "updated_at": state.updated_at,
        "last_progress_at": state.last_progress_at,
        "stage": state.ledger.now.stage if state.ledger.now else None,
        "questions": len(state.open_questions),
        "wake_at": wake_at(state),
        "waiting_on": waiting_on,
        "needs": needs,
        "error": error,
        "result": state.result[:SHORT] if state.result else None,
        "damage": len(state.damage),
        "suspect": is_suspect(state),
        "idempotency_key": state.idempotency_key,
    }


def _shown(state: RunState, stalled: str | None) -> tuple[Status, str | None, str | None, str | None]:
    """Return status, waiting_on, needs and error."""
    if stalled is not None and state.status not in TERMINAL:
        return Status.PARKED, None, "disk", stalled
    if state.cancel_by is not None and state.status not in TERMINAL:
        return Status.ACTIVE, None, None, None  # wherever it rested: its cancel is carried on, after a crash too
    if state.status is Status.ACTIVE:
        if waits_for_human(state):
            return Status.WAITING, "human", None, None
        if state.retry_at is not None:
            return Status.WAITING, "timer", None, None
        return Status.ACTIVE, None, None, None
    return state.status, None, state.needs, state.reason if state.status is not Status.COMPLETED else None


def wake_at(state: RunState) -> str | None:
    """Return the earliest time at which something happens by itself: a retry, or a question that expires."""
    expiries = [question.expires_at for question in state.open_questions if question.expires_at]
    return min([*expiries, *([state.retry_at] if state.retry_at else [])], default=None)


def questions_of(state: RunState, *, up_to: int | None = None) -> list[Json]:
    """Return the open questions as they are shown, and kept in interactions.json; those asked up to a seq only."""
    return [
        {
            "run_id": state.run_id,
            "interaction_id": question.interaction_id,
            "kind": question.kind,
            "prompt": question.prompt,
            "options": question.options,
            "binds_to": question.binds_to,
            "ask": question.ask,
            "asked_at": question.asked_at,
            "expires_at": question.expires_at,
            "agent": state.agent_name,
            "advisory": (state.agent.get("sandbox") or "none") == "none",
        }
        for question in state.open_questions
        if up_to is None or question.opened_seq <= up_to
    ]


def visits_of(state: RunState) -> list[Json]:
    """Return the ledger of stage visits, as it is shown and kept in stages.json."""
    return [
        {
            "stage": visit.stage,
            "visit": visit.visit,
            "entered": visit.entered,
            "left": visit.left,
            "turns": visit.turns,
            "tokens": visit.tokens,
            "cost_usd": round(visit.cost_usd, 6),
            "result": visit.result,
        }
        for visit in state.ledger.visits
    ]


def sidecars_of(state: RunState) -> dict[str, list[Json]]:
    """Return the lists that stand beside meta.json, those that list something."""
    sidecars: dict[str, list[Json]] = {}
    if state.interactions:
        sidecars["interactions"] = questions_of(state)
    if state.ledger.visits:
        sidecars["stages"] = visits_of(state)
    return sidecars


def damaged_index(run_id: str, problem: str, stale: Json | None = None) -> Json:
    """Return what is shown of a run that cannot be folded: what its old index knew, and the reason."""
    known: dict[str, Any] = {name: value for name, value in (stale or {}).items() if name != "journal"}
    return {**known, "run_id": run_id, "status": Status.DAMAGED, "error": problem, "waiting_on": None, "needs": None}


def suspended_index(index: Json, reason: str) -> Json:
    """Return what is shown of a run whose journal is not read because the daemon died with it in hand."""
    shown = {"status": Status.QUARANTINED, "error": reason, "waiting_on": None, "needs": None, "wake_at": None}
    return {**index, **shown}


def view_of(state: RunState, index: Json) -> Json:
    """Return one run in full, for `show`."""
    calls = [
        {
            "call_id": call.call_id,
            "name": call.name,
            "arguments": call.arguments,
            "effect": call.effect,
            "started": call.started,
            "outcome": call.outcome,
        }
        for call in state.calls
    ]
    return {
        **index,
        "task": state.task,
        "result": state.result,
        "limits": state.limits,
        "model": state.model,
        "by": state.by,
        "on_restart": state.on_restart,
        "version": state.version,
        "phase": state.phase if state.status is Status.ACTIVE else None,
        "reason": state.reason,
        "calls": calls,
        "damage": [{"offset": place.offset, "what": place.what} for place in state.damage],
        "revivals": {
            "attempts": state.revival_attempts,
            "charged": state.charged_revivals,
            "without_progress": state.stalled_revivals,
        },
        "questions": questions_of(state),
        "stages": visits_of(state),
        "seq": state.seq,
        "hand_written": state.hand_written,
    }
