"""What the fold does with the records of a run's life: start, claims, control, stages, questions, the end. Pure."""

from collections.abc import Callable

from onward.core import status as states
from onward.core.fold_work import progressed, stop_inferring
from onward.core.interactions import Interaction
from onward.core.records import BadRecord, Json
from onward.core.stages import Visit
from onward.core.state import RunState
from onward.core.vocabulary import Needs


def _run_started(state: RunState, line: Json) -> None:
    if state.run_id:
        raise BadRecord("a second RunStarted")
    for name in _STARTED_FIELDS:
        if name in line:
            setattr(state, name, line[name])
    state.created_at = state.last_progress_at = str(line.get("ts", ""))
    state.conversation.add_message(line["seq"], line["task"])


_STARTED_FIELDS = (
    "run_id", "kind", "agent", "agent_name", "agent_hash", "task", "workspace", "limits", "by", "on_restart",
    "version", "model", "parent", "depth", "idempotency_key", "workspace_is_mount",
)  # fmt: skip


def _run_claimed(state: RunState, line: Json) -> None:
    names = ("machine_id", "runs_inode", "boot_id", "pid", "start_ticks", "epoch")
    if state.claim is not None and state.claim["boot_id"] != line["boot_id"] and not state.drained:
        state.rebooted = True
    state.claim = {name: line[name] for name in names}
    state.claims += 1
    for call in state.open_calls:
        if call.started and state.reruns(call):
            call.started = False
    state.drained, state.in_flight, state.revived_by_hand = False, [], False


def _run_revived(state: RunState, line: Json) -> None:
    manual = line["cause"] == "manual"
    state.status = states.after("RunRevived(manual)" if manual else "RunRevived", state.status)
    state.reason = state.needs = state.retry_at = None
    state.revival_attempts += 1
    state.totals.revivals += 1
    stop_inferring(state)
    state.revived_by_hand = manual
    if manual:
        state.cooling, state.fruitless, state.repeated = {}, 0, 0  # a human says: try now
        state.gap_since_turn = False  # a human saw the damage and chose to go on
        state.charged_revivals = state.stalled_revivals = 0
        if state.ledger.visits and state.ledger.visits[-1].to is None:
            # It goes on in the stage in which it ended, with that one's tools, permissions and model.
            state.ledger.visits[-1].left = state.ledger.visits[-1].result = None
        for call in state.calls:
            call.ends_run = None  # the end that it asked for is taken back
    elif line["charged"]:
        state.charged_revivals += 1
        state.stalled_revivals += 1


def _run_paused(state: RunState, line: Json) -> None:
    state.status = states.after(line["type"], state.status)
    state.reason, state.needs, state.retry_at = line["reason"], None, None
    state.drained = True
    stop_inferring(state)


def _run_quarantined(state: RunState, line: Json) -> None:
    state.untold = state.untold or not (state.drained or state.told)
    _run_paused(state, line)


def _run_resumed(state: RunState, line: Json) -> None:
    state.status = states.after(line["type"], state.status)
    state.reason = state.needs = state.retry_at = None
    if line["by"] != "daemon":
        state.cooling, state.fruitless, state.repeated = {}, 0, 0  # a human says: try now


def _settings_changed(state: RunState, line: Json) -> None:
    state.limits = line["limits"]
    if line.get("grants") is not None:
        state.grants = line["grants"]


def _stage_entered(state: RunState, line: Json) -> None:
    if state.ledger.now is not None:
        raise BadRecord(f"StageEntered: the run is in {state.ledger.now.stage!r} still")
    entered = str(line.get("ts", ""))
    state.ledger.visits.append(Visit(stage=line["stage"], visit=line["visit"], entered=entered, seq=line["seq"]))


def _stage_left(state: RunState, line: Json) -> None:
    visit = state.ledger.now
    if visit is None or (visit.stage, visit.visit) != (line["stage"], line["visit"]):
        raise BadRecord(f"StageLeft: the run is not in {line['stage']!r}")
    visit.left, visit.result, visit.to = str(line.get("ts", "")), line.get("result"), line.get("to")


def _interaction_opened(state: RunState, line: Json) -> None:
    if line["interaction_id"] in state.interactions:
        raise BadRecord(f"the question {line['interaction_id']!r} was asked before")
    state.interactions[line["interaction_id"]] = Interaction(
        interaction_id=line["interaction_id"],
        kind=line["kind"],
        prompt=line["prompt"],
        options=line["options"],
        binds_to=line["binds_to"],
        ask=line["ask"],
        opened_seq=line["seq"],
        asked_at=str(line.get("ts", "")),
        expires_at=line.get("expires_at"),
    )


def _interaction_answered(state: RunState, line: Json) -> None:
    question = state.interactions.get(line["interaction_id"])
    if question is None:
        raise BadRecord(f"InteractionAnswered: nobody asked {line['interaction_id']!r}")
    if not question.is_open:
        return  # it was answered or closed for ever: a note
    question.answer, question.answered_by = line["answer"], line["by"]
    if not state.inferring and not any(call.started for call in state.open_calls):
        state.drained = True  # it only waited: until something begins, its daemon's end interrupts nothing
    progressed(state, line)


def _interaction_closed(state: RunState, line: Json) -> None:
    question = state.interactions.get(line["interaction_id"])
    if question is None or question.closed is not None:
        raise BadRecord(f"InteractionClosed: the question {line['interaction_id']!r} is not there or closed already")
    question.closed = line["reason"]


def _cancel_requested(state: RunState, line: Json) -> None:
    if state.status in states.TERMINAL:
        raise BadRecord("CancelRequested: the run is over")
    state.cancel_by = line["by"]
    stop_inferring(state)


def _run_parked(state: RunState, line: Json) -> None:
    state.status = states.after(line["type"], state.status)
    state.reason, state.needs, state.retry_at = line["reason"], line["needs"], line.get("retry_at")
    state.parked_at = str(line.get("ts", ""))
    if line["needs"] == Needs.DECISION:
        state.untold = state.untold or not (state.drained or state.told)
    state.drained = True
    stop_inferring(state)


def _daemon_draining(state: RunState, line: Json) -> None:
    state.drained = True
    state.in_flight = [str(call_id) for call_id in line.get("in_flight", [])]
    state.totals.active_s = max(state.totals.active_s, line.get("active_s", 0.0))
    stop_inferring(state)


def _run_ended(state: RunState, line: Json) -> None:
    try:
        state.status = states.after("RunEnded", state.status, line["status"])
    except ValueError:
        raise BadRecord(f"RunEnded: {line['status']!r} is no status") from None
    state.reason, state.result = line["reason"], line.get("result")
    if (visit := state.ledger.now) is not None:
        visit.left, visit.result = str(line.get("ts", "")), line.get("result")
    state.needs = state.retry_at = None
    state.drained = True
    stop_inferring(state)


def _checkpoint(state: RunState, line: Json) -> None:
    """Replay from the start already has this state; `restore` serves a replay that begins here."""


HANDLERS: dict[str, Callable[[RunState, Json], None]] = {
    "RunStarted": _run_started,
    "RunClaimed": _run_claimed,
    "RunRevived": _run_revived,
    "StageEntered": _stage_entered,
    "StageLeft": _stage_left,
    "InteractionOpened": _interaction_opened,
    "InteractionAnswered": _interaction_answered,
    "InteractionClosed": _interaction_closed,
    "SettingsChanged": _settings_changed,
    "CancelRequested": _cancel_requested,
    "RunPaused": _run_paused,
    "RunResumed": _run_resumed,
    "RunParked": _run_parked,
    "RunQuarantined": _run_quarantined,
    "DaemonDraining": _daemon_draining,
    "RunEnded": _run_ended,
    "Checkpoint": _checkpoint,
}
