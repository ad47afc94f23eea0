"""What a run does next: one decision from its state. Pure.

`next_step` is asked after every change. The shell carries the answer out and asks again; it holds no policy of its own.
"""

from dataclasses import dataclass, field, replace
from datetime import timedelta

from onward.core import retry
from onward.core.budget import budget_question, budget_reached
from onward.core.conversation import CallState
from onward.core.fruitless import given_up, going_round
from onward.core.gates import callable_now, look
from onward.core.interactions import Interaction, Kind
from onward.core.records import (
    InteractionClosed,
    InteractionOpened,
    Json,
    MessageAdded,
    Record,
    RunEnded,
    RunParked,
    RunPaused,
)
from onward.core.stages import (
    Stage,
    Visit,
    approved,
    asked_at,
    begun,
    edited_text,
    failing,
    leaving,
    not_approved,
    prompt_of,
)
from onward.core.state import RunState
from onward.core.status import TERMINAL, Status
from onward.core.text import excerpt
from onward.core.times import parse_stamp, seconds_between, stamp
from onward.core.vocabulary import Needs, Source


@dataclass(frozen=True, slots=True)
class Infer:
    """Ask this model. `attempt` counts the requests since the newest turn, from 1."""

    attempt: int
    model: str


@dataclass(frozen=True, slots=True)
class RunCalls:
    """Hand these calls over now, side by side; with none, wait for those that run."""

    start: tuple[CallState, ...]
    edited: dict[str, Json] = field(default_factory=dict)
    """By call id, the arguments that a human gave instead."""


@dataclass(frozen=True, slots=True)
class Write:
    """Append these records durably, in one piece, then ask again."""

    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class WaitForHuman:
    """Nothing to do before somebody answers one of these questions."""

    questions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """Nothing to do before this UTC time."""

    retry_at: str
    reason: str


@dataclass(frozen=True, slots=True)
class Park:
    """The run cannot go on without something."""

    needs: Needs
    reason: str
    retry_at: str | None = None
    question: InteractionOpened | None = None


@dataclass(frozen=True, slots=True)
class End:
    """The run is over."""

    status: Status
    reason: str
    result: str | None


@dataclass(frozen=True, slots=True)
class Rest:
    """The run is not active: nothing to do until somebody changes that."""

    status: Status


Step = Infer | RunCalls | Write | WaitForHuman | WaitUntil | Park | End | Rest

RESULT_BYTES = 32 * 1024


def written(decided: Step) -> tuple[Record, ...]:
    """Return the records that carry a decision out as a whole; none where something is to be done or waited for."""
    match decided:
        case Write(records):
            return records
        case Park(needs, reason, retry_at, question):
            parked = RunParked(by="daemon", reason=reason, needs=needs, retry_at=retry_at)
            return (question, parked) if question else (parked,)
        case End(status, reason, result):
            shown = excerpt(result, RESULT_BYTES) if result is not None else None
            return (RunEnded(status=status, reason=reason, result=shown),)
        case _:
            return ()


def parking(state: RunState, parked: RunParked) -> list[Record]:
    """Return what is written of a run that cannot go on: nothing where a human brought it to rest meanwhile."""
    may_park = state.cancel_by is None and state.status in (Status.ACTIVE, Status.PARKED)
    return [parked] if may_park else []


TOKENS_PER_BYTE = 0.3
"""A cautious estimate over languages and code, used only to see that a request cannot fit."""


def next_step(
    state: RunState,
    *,
    now: str,
    active_s: float,
    workers: int,
    window_tokens: int | None = None,
    may_expire: bool = True,
) -> Step:
    """Return the run's next step.

    Args:
        state: The folded state.
        now: The UTC time in the journal's form.
        active_s: Seconds the run was active so far, in all its lives.
        workers: How many calls of one run may run side by side.
        window_tokens: The model's context window; None when unknown.
        may_expire: Whether questions expire: not before they could be answered for a while.
    """
    if state.cancel_by is not None and state.status not in TERMINAL:
        return _cancelled(state)
    if state.status is not Status.ACTIVE:
        return Rest(state.status)
    if state.gap_since_turn:
        return Park(Needs.DECISION, f"the journal is damaged after the newest turn: {state.damage[-1].what}")
    expired = [question for question in state.open_questions if (question.expires_at or now) < now]
    if may_expire and expired:
        return Write(tuple(InteractionClosed(interaction_id=q.interaction_id, reason="it expired") for q in expired))
    return _with_expiry(_active(state, now, active_s, workers, window_tokens), state, now)


def waits_for_human(state: RunState) -> bool:
    """Whether an active run can do nothing before somebody answers."""
    if state.inferring or not state.open_questions or state.gap_since_turn:
        return False
    return isinstance(_active(state, state.updated_at, 0.0, 1, None), WaitForHuman)


def _active(state: RunState, now: str, active_s: float, workers: int, window_tokens: int | None) -> Step:
    if (held_back := _restart_question(state)) is not None:
        return held_back
    if state.open_calls:
        return _calls(state, workers)
    if (ended := stage_end(state)) is not None:
        return ended
    spent = budget_reached(state, active_s)
    overtaken = {Kind.CHECKPOINT, Kind.DAMAGE} | (set() if spent else {Kind.BUDGET})
    if stale := [question for question in state.open_questions if question.kind in overtaken]:
        reason = "the run went on before it was answered"
        return Write(tuple(InteractionClosed(interaction_id=q.interaction_id, reason=reason) for q in stale))
    if spent:
        return Park(Needs.BUDGET, spent, question=budget_question(state, spent))
    if (why := given_up(state.fruitless, state.turn.stop_reason if state.turn else "")) is not None:
        return Park(Needs.HUMAN, why)
    if (why := going_round(state.repeated, state.calls)) is not None:
        return Park(Needs.HUMAN, why)
    if window_tokens is not None and state.conversation.size_bytes * TOKENS_PER_BYTE > window_tokens:
        return Park(Needs.DECISION, f"the conversation does not fit the model's window of {window_tokens} tokens")
    model = choose_model(state, now)
    return Infer(state.attempts + 1, model) if model is not None else _wait(state, now)


def _with_expiry(decided: Step, state: RunState, now: str) -> Step:
    """Say of each question that is opened when it expires, where the definition says that questions do."""
    expires_s = state.agent.get("question_expires_s")
    if not isinstance(decided, Write) or not isinstance(expires_s, int | float):
        return decided
    at = stamp(parse_stamp(now) + timedelta(seconds=expires_s))
    records = [replace(r, expires_at=at) if isinstance(r, InteractionOpened) else r for r in decided.records]
    return Write(tuple(records))


def choose_model(state: RunState, now: str) -> str | None:
    """Return the first model of the chain that is not cooling down after a failure; None when all are."""
    return next((model for model in state.chain if _cooled_at(state, model, now) <= now), None)


def _cooled_at(state: RunState, model: str, now: str) -> str:
    cooling = state.cooling.get(model)
    return "" if cooling is None else retry.due_at(cooling, state.cooling_since.get(model, ""), now)


def may_enter(state: RunState, now: str) -> bool:
    """Whether there is something to do: it is active, its parked time is over, or its cancel is to be carried on."""
    if state.cancel_by is not None and state.status not in TERMINAL:
        return True
    if state.status is Status.PARKED and state.retry_at is not None:
        return retry.due_at(state.retry_at, state.parked_at, now) <= now
    return state.status is Status.ACTIVE


def _wait(state: RunState, now: str) -> Step:
    retry_at = min(_cooled_at(state, model, now) for model in state.chain)
    needs, meaning = retry.needs_of(state.last_failure)
    if seconds_between(now, retry_at) > retry.LONGEST_WAIT_S:
        return Park(needs, f"{meaning}; it is tried again at {retry_at}", retry_at)
    return WaitUntil(retry_at, meaning)


def _cancelled(state: RunState) -> Step:
    """What runs is waited for (it is being ended), what was not handed over never runs."""
    if any(call.started for call in state.open_calls):
        return RunCalls(())
    return End(Status.CANCELLED, f"cancelled by {state.cancel_by}", None)


def _calls(state: RunState, workers: int) -> Step:
    gates = look(state)
    if gates.records:
        return Write(tuple(gates.records))
    start = callable_now(state.calls, workers, frozenset(gates.held))
    if not start and gates.held and not any(call.started for call in state.open_calls):
        return WaitForHuman(tuple(question.interaction_id for question in state.open_questions))
    edited = {call.call_id: gates.edited[call.call_id] for call in start if call.call_id in gates.edited}
    return RunCalls(tuple(start), edited)


def _restart_question(state: RunState) -> Step | None:
    """What `on_restart = "ask"` asked holds everything back but the calls that run on."""
    question = next((q for q in state.interactions.values() if q.kind == Kind.RESTART and q.closed is None), None)
    if question is None:
        return None
    if question.is_open:
        running = any(call.started for call in state.open_calls)
        return RunCalls(()) if running else WaitForHuman((question.interaction_id,))
    closed = InteractionClosed(interaction_id=question.interaction_id, reason="carried out")
    if question.decision == "stop":
        by = question.answered_by or "?"
        return Write((RunPaused(by=by, reason="it was not to go on after the interruption"), closed))
    return Write((closed,))


def rested(state: RunState) -> bool:
    """Whether a run came to a checkpoint and has begun nothing since; a message overtakes the question, no work."""
    return bool(_checkpoints(state)) and not state.attempts


def stage_end(state: RunState) -> Step | None:
    """Return what the newest turn makes of its stage or of the run when it ended it, if nothing is owed.

    None: the run works on. Nothing here asks a model, so whoever dies in it interrupts nothing.
    """
    if (entered := begun(state.agent, state.ledger)) is not None:
        return Write(entered)
    if unsaid := _unsaid(state):
        return Write(unsaid)
    turn, visit = state.turn, state.ledger.now
    if turn is None or state.conversation.unseen() or state.open_calls:
        return None
    if visit is not None and visit.seq > state.turn_seq:
        return None  # the turn belongs to the stage before
    if (finish := state.finish) is not None:
        status = Status(finish.ends_run or Status.COMPLETED)
        instead = failing(state.agent, state.ledger, finish.result) if status is Status.FAILED else None
        return Write(instead) if instead is not None else End(status, "finish", finish.result)
    moved = next((call for call in turn.calls if call.moves_to and call.outcome == "ok"), None)
    if moved is None and (turn.asks or turn.stop_reason != "end_turn"):
        return None
    text = "\n".join(block["text"] for block in turn.content if type(block.get("text")) is str)
    if visit is None or state.stage is None:
        return End(Status.COMPLETED, "the last turn asked for no tools", text)
    if moved is None:
        return _stage_over(state, visit, state.stage, text, None)
    return _stage_over(state, visit, state.stage, text or moved.result, moved.moves_to)


def _unsaid(state: RunState) -> tuple[Record, ...]:
    """Return what a run that has just entered a stage still has to be told: the stage's prompt, and a human's edit."""
    visit, stage = state.ledger.now, state.stage
    if visit is None or stage is None or visit.seq < state.turn_seq:
        return ()
    edited = _edit_of(state) if len(state.ledger.visits) > 1 else None
    said = [prompt_of(stage, visit.visit), approved(edited) if edited else None]
    return tuple(message for message in said if message is not None and message.message_id not in state.messages)


def _stage_over(state: RunState, visit: Visit, stage: Stage, result: str, moves_to: str | None) -> Step:
    target = moves_to or (stage.next[0] if stage.next else None)
    choose = f"choose-{visit.stage}-{visit.visit}"
    if moves_to is None and len(stage.next) > 1 and choose not in state.messages:
        words = f"This stage is done. Call transition with the next one: {', '.join(stage.next)}."
        return Write((MessageAdded(message_id=choose, source=Source.SYSTEM, content=words, by="stage"),))
    edited = _edit_of(state)
    result = result if edited is None else edited_text(edited)
    asked = _checkpoints(state)
    to_open, deciding = asked_at(visit, stage, asked, result, len(state.interactions))
    if to_open is not None:
        return Write((to_open,))
    if deciding is not None and deciding.is_open:
        return WaitForHuman((deciding.interaction_id,))
    if deciding is not None:
        return Write((not_approved(deciding, edited),))
    if target is None:
        return End(Status.COMPLETED, f"stage {visit.stage!r} is the last one", result)
    moved = leaving(state.agent, state.ledger, visit, target, result)
    return Write((*moved, *([approved(edited)] if edited and not isinstance(moved[-1], RunEnded) else [])))


def _checkpoints(state: RunState) -> list[Interaction]:
    """Return the checkpoint questions about the newest turn, one a point."""
    return [q for q in state.interactions.values() if q.kind == Kind.CHECKPOINT and q.opened_seq > state.turn_seq]


def _edit_of(state: RunState) -> Interaction | None:
    """Return the question whose answer changed what the newest turn brought; the last one counts."""
    return next((q for q in reversed(_checkpoints(state)) if q.decision == "edit"), None)
