"""The fold: `apply(state, line)` changes a run's state by one journal line. Pure, deterministic.

The same function serves the live run (each record right after it was written) and replay, so the two cannot differ.
"""

from collections.abc import Callable
from typing import Any
from zlib import crc32

from onward.core import status as states
from onward.core.conversation import CallState, Turn
from onward.core.fruitless import fruitless_after
from onward.core.ids import MAX_TURN, is_call_id
from onward.core.interactions import Interaction
from onward.core.records import FOLD_VERSION, SCHEMA, problem_with
from onward.core.stages import Visit
from onward.core.state import Damage, RunState
from onward.core.status import TERMINAL
from onward.core.vocabulary import Needs, Outcome, SettledBy, Source
from onward.errors import InternalError

Line = dict[str, Any]


class BadRecord(ValueError):
    """A whole line that cannot be folded here; the message says why. The state is unchanged."""


class NewerRecord(ValueError):
    """A newer Onward wrote something that must not be overlooked; the run is not to be touched by this version."""


def apply(state: RunState, line: Line) -> None:
    """Change `state` by one decoded line (`seq`, `ts`, `type` and the record's members).

    Unknown types are counted in `seq` and otherwise ignored.

    Raises:
        BadRecord: The line does not fit its type or the state; nothing was changed.
        NewerRecord: Its type is unknown and it says `"must": true`, or its schema is newer.
    """
    seq, kind = line["seq"], line["type"]
    handler = _HANDLERS.get(kind)
    if handler is None:
        if line.get("must"):
            raise NewerRecord(f"record {seq} is a {kind!r}, which this version does not know")
    else:
        if kind == "RunStarted":
            _refuse_newer_schema(line)
        if problem := problem_with(line):
            raise BadRecord(f"{kind}: {problem}")
        try:
            handler(state, line)
        except InternalError as error:
            raise BadRecord(str(error)) from None
    if seq > state.seq:
        state.seq = seq
    ts = line.get("ts")
    if type(ts) is str:
        state.updated_at = ts


def _refuse_newer_schema(line: Line) -> None:
    """Before the members are looked at: a newer schema may have others."""
    schema = line.get("schema")
    if type(schema) is int and schema > SCHEMA:
        raise NewerRecord(f"the journal has schema {schema}, this version knows {SCHEMA}")


def note_damage(state: RunState, offset: int, what: str) -> None:
    """Record that the journal is damaged at byte `offset`, at the place that the fold has reached."""
    state.damage.append(Damage(offset=offset, what=what))
    state.gap_since_turn = True
    if state.turn is not None:
        state.turn.gap = True


def _run_started(state: RunState, line: Line) -> None:
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


def _run_claimed(state: RunState, line: Line) -> None:
    names = ("machine_id", "runs_inode", "boot_id", "pid", "start_ticks", "epoch")
    if state.claim is not None and state.claim["boot_id"] != line["boot_id"] and not state.drained:
        state.rebooted = True
    state.claim = {name: line[name] for name in names}
    state.claims += 1
    for call in state.open_calls:
        if call.started and state.reruns(call):
            call.started = False
    state.drained, state.in_flight, state.revived_by_hand = False, [], False


def _run_revived(state: RunState, line: Line) -> None:
    manual = line["cause"] == "manual"
    state.status = states.after("RunRevived(manual)" if manual else "RunRevived", state.status)
    state.reason = state.needs = state.retry_at = None
    state.revival_attempts += 1
    state.totals.revivals += 1
    _stop_inferring(state)
    state.revived_by_hand = manual
    if manual:
        state.cooling, state.fruitless = {}, 0  # a human says: try now
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


def _progressed(state: RunState, line: Line) -> None:
    state.stalled_revivals = 0
    state.last_progress_at = str(line.get("ts", ""))


def _message_added(state: RunState, line: Line) -> None:
    if line["message_id"] in state.messages:
        raise BadRecord(f"message {line['message_id']!r} was added before")
    state.messages[line["message_id"]] = text_mark(line["content"])
    state.conversation.add_message(line["seq"], line["content"])
    if line["source"] == Source.REVIVAL:
        state.told, state.untold = True, False
    elif line["source"] != Source.SYSTEM:
        state.fruitless = 0


def _stop_inferring(state: RunState) -> None:
    """A request whose end is not known, or that broke off, is charged its estimate: nothing launders a budget."""
    if state.inferring and state.estimate:
        state.totals.tokens_in += _count(state.estimate.get("tokens"))
        cost_usd = state.estimate.get("cost_usd")
        state.totals.cost_usd += cost_usd if isinstance(cost_usd, int | float) else 0.0
    state.inferring, state.estimate = False, None


def text_mark(text: str) -> str:
    """Return what is remembered of a message: enough to know its text again."""
    return f"{len(text)}-{crc32(text.encode()):08x}"


def _inference_started(state: RunState, line: Line) -> None:
    _stop_inferring(state)
    state.inferring, state.estimate = True, line.get("estimate")
    state.drained = state.revived_by_hand = False
    state.attempts += 1
    state.retry_at = None
    state.totals.active_s = line["active_s"]


def _inference_failed(state: RunState, line: Line) -> None:
    if line.get("charged"):
        _stop_inferring(state)
    state.inferring, state.estimate = False, None
    state.failures += 1
    state.last_failure = line["failure"]
    state.totals.active_s = line["active_s"]
    if (retry_at := line.get("retry_at")) is not None:
        model = line.get("model") or state.chain[0]
        state.cooling[model], state.cooling_since[model] = retry_at, str(line.get("ts", ""))
    if all(model in state.cooling for model in state.chain):
        state.retry_at = min(state.cooling[model] for model in state.chain)


def _assistant_turn(state: RunState, line: Line) -> None:
    content = line["content"]
    for block in content:
        if type(block) is not dict:
            raise BadRecord("AssistantTurn: a content block is not an object")
    if not 1 <= line["turn"] <= MAX_TURN:
        raise BadRecord(f"AssistantTurn: {line['turn']} is no turn")
    state.conversation.add_turn(
        Turn(
            turn=line["turn"],
            seen=line["seen"],
            content=content,
            stop_reason=line["stop_reason"],
            provider=line["provider"],
            model=line["model"],
        )
    )
    state.turns = max(state.turns, line["turn"])
    state.turn_seq = line["seq"]
    state.inferring = state.told = state.untold = state.rebooted = state.gap_since_turn = False
    state.attempts = state.failures = 0
    state.fruitless = fruitless_after(state.fruitless, line["stop_reason"], content)
    state.retry_at = None
    state.totals.tokens_in += _count(line["usage"].get("input_tokens"))
    state.totals.tokens_out += _count(line["usage"].get("output_tokens"))
    state.totals.cost_usd += line["cost_usd"]
    state.totals.active_s = line["active_s"]
    _count_in_visit(state, line)
    _progressed(state, line)


def _count_in_visit(state: RunState, line: Line) -> None:
    if (visit := state.ledger.now) is not None:
        visit.turns += 1
        visit.tokens += _count(line["usage"].get("input_tokens")) + _count(line["usage"].get("output_tokens"))
        visit.cost_usd += line["cost_usd"]


def _count(value: object) -> int:
    return value if type(value) is int else 0


def _tool_batch(state: RunState, line: Line) -> None:
    calls = [_call(call) for call in line["calls"]]
    if len({call.call_id for call in calls}) < len(calls):
        raise BadRecord("ToolBatch: two calls have one id")
    if state.turn is None or state.turn.turn != line["turn"] or state.turn.batch:
        # Only beside damage: the turn's own line is lost, or it is here twice.
        state.conversation.add_turn(Turn(turn=line["turn"], seen=state.seq, content=[], stop_reason="tool_use"))
        state.turns = max(state.turns, line["turn"])
    turn = state.turn
    if turn is None:
        raise InternalError("a turn was just added")
    turn.calls, turn.batch = calls, True
    state.totals.tool_calls += len(calls)


def _call(call: Any) -> CallState:
    try:
        call_id, provider_id, name = call["call_id"], call["provider_id"], call["name"]
        arguments, effect = call["arguments"], call["effect"]
    except (KeyError, TypeError):
        raise BadRecord("ToolBatch: a call lacks a member") from None
    texts = type(call_id) is type(provider_id) is type(name) is type(effect) is str
    if not texts or type(arguments) not in (dict, str):
        raise BadRecord("ToolBatch: a call's member has another type")
    if not is_call_id(call_id):
        raise BadRecord(f"ToolBatch: {call_id!r} is no call id")
    return CallState(call_id=call_id, provider_id=provider_id, name=name, arguments=arguments, effect=effect)


def _find_call(state: RunState, call_id: str) -> CallState | None:
    for call in state.calls:
        if call.call_id == call_id:
            return call
    return None


def _tool_call_started(state: RunState, line: Line) -> None:
    call = _find_call(state, line["call_id"])
    if call is None:
        raise BadRecord(f"ToolCallStarted names {line['call_id']!r}, which is not in the newest batch")
    call.started = True
    state.drained = state.revived_by_hand = False
    call.edited = line.get("arguments")
    call.boot_id = state.claim["boot_id"] if state.claim else None


def _tool_call_done(state: RunState, line: Line) -> None:
    if line.get("ends_run") not in (None, *TERMINAL):
        raise BadRecord(f"ToolCallDone: a run cannot end as {line['ends_run']!r}")
    call = _find_call(state, line["call_id"])
    if line["settled_by"] == SettledBy.TOOL:
        _progressed(state, line)
    if call is None or call.outcome is not None:
        return  # a late result of a call that is settled for ever: a note, never a second result
    if line["settled_by"] == SettledBy.POLICY and line["outcome"] == Outcome.NOT_STARTED:
        state.totals.tool_calls -= 1  # it was over a limit, and is not counted
    call.outcome, call.result, call.is_error = line["outcome"], line["result"], line["is_error"]
    call.ends_run, call.moves_to = line.get("ends_run"), line.get("moves_to")
    state.conversation.size_bytes += len(call.result)


def _run_paused(state: RunState, line: Line) -> None:
    state.status = states.after(line["type"], state.status)
    state.reason, state.needs, state.retry_at = line["reason"], None, None
    state.drained = True
    _stop_inferring(state)


def _run_quarantined(state: RunState, line: Line) -> None:
    state.untold = state.untold or not (state.drained or state.told)
    _run_paused(state, line)


def _run_resumed(state: RunState, line: Line) -> None:
    state.status = states.after(line["type"], state.status)
    state.reason = state.needs = state.retry_at = None
    if line["by"] != "daemon":
        state.cooling, state.fruitless = {}, 0  # a human says: try now


def _settings_changed(state: RunState, line: Line) -> None:
    state.limits = line["limits"]
    if line.get("grants") is not None:
        state.grants = line["grants"]


def _stage_entered(state: RunState, line: Line) -> None:
    if state.ledger.now is not None:
        raise BadRecord(f"StageEntered: the run is in {state.ledger.now.stage!r} still")
    entered = str(line.get("ts", ""))
    state.ledger.visits.append(Visit(stage=line["stage"], visit=line["visit"], entered=entered, seq=line["seq"]))


def _stage_left(state: RunState, line: Line) -> None:
    visit = state.ledger.now
    if visit is None or (visit.stage, visit.visit) != (line["stage"], line["visit"]):
        raise BadRecord(f"StageLeft: the run is not in {line['stage']!r}")
    visit.left, visit.result, visit.to = str(line.get("ts", "")), line.get("result"), line.get("to")


def _interaction_opened(state: RunState, line: Line) -> None:
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


def _interaction_answered(state: RunState, line: Line) -> None:
    question = state.interactions.get(line["interaction_id"])
    if question is None:
        raise BadRecord(f"InteractionAnswered: nobody asked {line['interaction_id']!r}")
    if not question.is_open:
        return  # it was answered or closed for ever: a note
    question.answer, question.answered_by = line["answer"], line["by"]
    if not state.inferring and not any(call.started for call in state.open_calls):
        state.drained = True  # it only waited: until something begins, its daemon's end interrupts nothing
    _progressed(state, line)


def _interaction_closed(state: RunState, line: Line) -> None:
    question = state.interactions.get(line["interaction_id"])
    if question is None or question.closed is not None:
        raise BadRecord(f"InteractionClosed: the question {line['interaction_id']!r} is not there or closed already")
    question.closed = line["reason"]


def _cancel_requested(state: RunState, line: Line) -> None:
    if state.status in states.TERMINAL:
        raise BadRecord("CancelRequested: the run is over")
    state.cancel_by = line["by"]
    _stop_inferring(state)


def _run_parked(state: RunState, line: Line) -> None:
    state.status = states.after(line["type"], state.status)
    state.reason, state.needs, state.retry_at = line["reason"], line["needs"], line.get("retry_at")
    state.parked_at = str(line.get("ts", ""))
    if line["needs"] == Needs.DECISION:
        state.untold = state.untold or not (state.drained or state.told)
    state.drained = True
    _stop_inferring(state)


def _daemon_draining(state: RunState, line: Line) -> None:
    state.drained = True
    state.in_flight = [str(call_id) for call_id in line.get("in_flight", [])]
    state.totals.active_s = max(state.totals.active_s, line.get("active_s", 0.0))
    _stop_inferring(state)


def _run_ended(state: RunState, line: Line) -> None:
    try:
        state.status = states.after("RunEnded", state.status, line["status"])
    except ValueError:
        raise BadRecord(f"RunEnded: {line['status']!r} is no status") from None
    state.reason, state.result = line["reason"], line.get("result")
    if (visit := state.ledger.now) is not None:
        visit.left, visit.result = str(line.get("ts", "")), line.get("result")
    state.needs = state.retry_at = None
    state.drained = True
    _stop_inferring(state)


def _checkpoint(state: RunState, line: Line) -> None:
    """Replay from the start already has this state; `restore` serves a replay that begins here."""


_HANDLERS: dict[str, Callable[[RunState, Line], None]] = {
    "RunStarted": _run_started,
    "RunClaimed": _run_claimed,
    "RunRevived": _run_revived,
    "MessageAdded": _message_added,
    "InferenceStarted": _inference_started,
    "InferenceFailed": _inference_failed,
    "AssistantTurn": _assistant_turn,
    "ToolBatch": _tool_batch,
    "ToolCallStarted": _tool_call_started,
    "ToolCallDone": _tool_call_done,
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


def restore(line: Line) -> RunState | None:
    """Return the state that a Checkpoint line holds, or None when it is none of this fold version or not whole."""
    if line["type"] != "Checkpoint" or problem_with(line) or line.get("fold") != FOLD_VERSION:
        return None
    try:
        state = RunState.from_json(line["state"])
    except (KeyError, TypeError, ValueError):
        return None
    if not state.run_id:
        return None
    apply(state, line)
    return state
