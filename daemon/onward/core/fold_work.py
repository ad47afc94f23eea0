"""What the fold does with the records of a run's work: messages, model requests, turns, calls. Pure."""

from collections.abc import Callable
from typing import Any
from zlib import crc32

from onward.core.conversation import CallState, Turn
from onward.core.fruitless import asks_again, fruitless_after
from onward.core.ids import MAX_TURN, is_call_id
from onward.core.records import BadRecord, Json
from onward.core.state import RunState
from onward.core.status import TERMINAL
from onward.core.vocabulary import Outcome, SettledBy, Source
from onward.errors import InternalError


def text_mark(text: str) -> str:
    """Return what is remembered of a message: enough to know its text again."""
    return f"{len(text)}-{crc32(text.encode()):08x}"


def _message_added(state: RunState, line: Json) -> None:
    if line["message_id"] in state.messages:
        raise BadRecord(f"message {line['message_id']!r} was added before")
    state.messages[line["message_id"]] = text_mark(line["content"])
    state.conversation.add_message(line["seq"], line["content"])
    if line["source"] == Source.REVIVAL:
        state.told, state.untold = True, False
    elif line["source"] != Source.SYSTEM:
        state.fruitless = state.repeated = 0


def stop_inferring(state: RunState) -> None:
    """A request whose end is not known, or that broke off, is charged its estimate: nothing launders a budget."""
    if state.inferring and state.estimate:
        state.totals.tokens_in += _count(state.estimate.get("tokens"))
        cost_usd = state.estimate.get("cost_usd")
        state.totals.cost_usd += cost_usd if isinstance(cost_usd, int | float) else 0.0
    state.inferring, state.estimate = False, None


def progressed(state: RunState, line: Json) -> None:
    state.stalled_revivals = 0
    state.last_progress_at = str(line.get("ts", ""))


def _inference_started(state: RunState, line: Json) -> None:
    stop_inferring(state)
    state.inferring, state.estimate = True, line.get("estimate")
    state.drained = state.revived_by_hand = False
    state.attempts += 1
    state.retry_at = None
    state.totals.active_s = line["active_s"]


def _inference_failed(state: RunState, line: Json) -> None:
    if line.get("charged"):
        stop_inferring(state)
    state.inferring, state.estimate = False, None
    state.failures += 1
    state.last_failure = line["failure"]
    state.totals.active_s = line["active_s"]
    if (retry_at := line.get("retry_at")) is not None:
        model = line.get("model") or state.chain[0]
        state.cooling[model], state.cooling_since[model] = retry_at, str(line.get("ts", ""))
    if all(model in state.cooling for model in state.chain):
        state.retry_at = min(state.cooling[model] for model in state.chain)


def _assistant_turn(state: RunState, line: Json) -> None:
    content = line["content"]
    for block in content:
        if type(block) is not dict:
            raise BadRecord("AssistantTurn: a content block is not an object")
    if not 1 <= line["turn"] <= MAX_TURN:
        raise BadRecord(f"AssistantTurn: {line['turn']} is no turn")
    state.repeated = state.repeated + 1 if asks_again(state.turn, content) else 0
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
    progressed(state, line)


def _count_in_visit(state: RunState, line: Json) -> None:
    if (visit := state.ledger.now) is not None:
        visit.turns += 1
        visit.tokens += _count(line["usage"].get("input_tokens")) + _count(line["usage"].get("output_tokens"))
        visit.cost_usd += line["cost_usd"]


def _count(value: object) -> int:
    return value if type(value) is int else 0


def _tool_batch(state: RunState, line: Json) -> None:
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


def _tool_call_started(state: RunState, line: Json) -> None:
    call = _find_call(state, line["call_id"])
    if call is None:
        raise BadRecord(f"ToolCallStarted names {line['call_id']!r}, which is not in the newest batch")
    call.started = True
    state.drained = state.revived_by_hand = False
    call.edited = line.get("arguments")
    call.boot_id = state.claim["boot_id"] if state.claim else None


def _tool_call_done(state: RunState, line: Json) -> None:
    if line.get("ends_run") not in (None, *TERMINAL):
        raise BadRecord(f"ToolCallDone: a run cannot end as {line['ends_run']!r}")
    call = _find_call(state, line["call_id"])
    if line["settled_by"] == SettledBy.TOOL:
        progressed(state, line)
    if call is None or call.outcome is not None:
        return  # a late result of a call that is settled for ever: a note, never a second result
    if line["settled_by"] == SettledBy.POLICY and line["outcome"] == Outcome.NOT_STARTED:
        state.totals.tool_calls -= 1  # it was over a limit, and is not counted
    call.outcome, call.result, call.is_error = line["outcome"], line["result"], line["is_error"]
    call.ends_run, call.moves_to = line.get("ends_run"), line.get("moves_to")
    state.conversation.size_bytes += len(call.result)


HANDLERS: dict[str, Callable[[RunState, Json], None]] = {
    "MessageAdded": _message_added,
    "InferenceStarted": _inference_started,
    "InferenceFailed": _inference_failed,
    "AssistantTurn": _assistant_turn,
    "ToolBatch": _tool_batch,
    "ToolCallStarted": _tool_call_started,
    "ToolCallDone": _tool_call_done,
}
