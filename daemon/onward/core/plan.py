"""The recovery plan: what is done with a run that is found on disk. Pure.

`plan(state, evidence, policy)` decides; `recovery` gathers the evidence before and carries the plan out after. The
rules are those of design "Recovery": every call of the newest batch is settled once, in model order, by the first row
that matches, and nothing is ever executed again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from onward.core import step
from onward.core.conversation import INTERRUPTED, NOT_STARTED, CallState, Turn, calls_of, edit_of
from onward.core.gates import question_of
from onward.core.ids import is_call_id
from onward.core.interactions import Kind
from onward.core.records import Call, Record, RunEnded, RunRevived, ToolBatch, ToolCallDone
from onward.core.state import RunState
from onward.core.status import TERMINAL, Status
from onward.core.vocabulary import Cause, Effect, Needs, Outcome, SettledBy

NOTICE = (
    "[background event] Automated notification from the system, not the user speaking. The previous session ended "
    "while this run was working, and the run has been resumed. Everything above is its own conversation, up to the "
    "moment it stopped. Work that was not finished is still unfinished."
)
NOTICE_REBOOT = (
    " The machine restarted without a clean shutdown: what commands wrote in the last minute before that may be "
    "missing or empty; check it."
)


class Found(StrEnum):
    """What the world shows of a call that the journal does not settle."""

    NOTHING = "nothing"
    ALIVE = "alive"
    RESULT = "result"
    FENCED = "fenced"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The evidence about one call. `done` is its real result, where one was found; `facts` go into its record.

    `boot_id` is the boot in which its launcher (or our fence) was put in place.
    """

    found: Found
    done: ToolCallDone | None = None
    boot_id: str | None = None
    facts: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What bounds recovery, and where it happens."""

    boot_id: str
    max_revivals: int | None = None
    max_stalled_revivals: int = 3


class Verdict(StrEnum):
    """What becomes of the run."""

    ENTER = "enter"
    END = "end"
    LEAVE = "leave"
    """It is not active (terminal, paused, parked, quarantined): nothing is written."""
    PARK = "park"
    QUARANTINE = "quarantine"
    STOP = "stop"
    """`on_restart = "stop"`: it is paused."""
    ASK = "ask"
    """`on_restart = "ask"`: a human decides before the next request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryPlan:
    """What recovery writes and does, in this order: `revived`, `settlements`, the notice, then `verdict`.

    `adopt` are the calls whose launchers are alive: their real results are waited for.
    """

    verdict: Verdict
    reason: str
    revived: RunRevived | None = None
    settlements: tuple[Record, ...] = ()
    notice: str | None = None
    adopt: tuple[str, ...] = ()
    ended: RunEnded | None = None
    needs: Needs | None = None


def plan(state: RunState, evidence: Mapping[str, Evidence], policy: Policy, *, loss: str | None = None) -> RecoveryPlan:
    """Decide what recovery does with a folded run.

    Args:
        state: As folded from its journal; not changed.
        evidence: By call id, for every unsettled call of the newest batch.
        policy: Caps and the present boot.
        loss: What `lost_records` says.
    """
    if state.cancel_by is not None and state.status not in TERMINAL:
        return _cancelled(state, evidence, policy)
    if state.status is not Status.ACTIVE:
        return RecoveryPlan(verdict=Verdict.LEAVE, reason=leave_reason(state))
    if damaged := damage_of(state, loss):
        return RecoveryPlan(verdict=Verdict.PARK, reason=damaged, needs=Needs.DECISION)
    if ended := finished(state):
        return RecoveryPlan(verdict=Verdict.END, reason="finished", ended=ended)
    settlements, adopt, interrupted = _settle_all(state, evidence, policy)
    if _only_waits(state):
        return RecoveryPlan(verdict=Verdict.ENTER, reason="waits for a human, or is between two stages")
    if not _was_interrupted(state, adopt, interrupted):
        return RecoveryPlan(verdict=Verdict.ENTER, reason="not interrupted", settlements=settlements, adopt=adopt)
    cause = cause_of(state, policy.boot_id)
    notice = None if state.told else NOTICE + (NOTICE_REBOOT if cause is Cause.REBOOT or state.rebooted else "")
    if state.revived_by_hand:
        reason = "revived by hand"
        return RecoveryPlan(verdict=Verdict.ENTER, reason=reason, settlements=settlements, notice=notice, adopt=adopt)
    charged = cause in (Cause.CRASH, Cause.REBOOT)
    if refusal := _refusal(state, policy, charged):
        return refusal
    return RecoveryPlan(
        verdict={"stop": Verdict.STOP, "ask": Verdict.ASK}.get(state.on_restart, Verdict.ENTER),
        reason=f"interrupted by a {cause}",
        revived=RunRevived(attempt=state.revival_attempts + 1, cause=cause, charged=charged),
        settlements=settlements,
        notice=notice,
        adopt=adopt,
    )


def _cancelled(state: RunState, evidence: Mapping[str, Evidence], policy: Policy) -> RecoveryPlan:
    """A cancel is only carried on: its processes were ended before the evidence was gathered."""
    settlements, _, _ = _settle_all(state, evidence, policy)
    ended = RunEnded(status=Status.CANCELLED, reason=f"cancelled by {state.cancel_by}")
    return RecoveryPlan(verdict=Verdict.END, reason="cancelled", settlements=settlements, ended=ended)


def leave_reason(state: RunState) -> str:
    """Return the word of `inspect` for a run that is not active."""
    if state.status is Status.COMPLETED:
        return "finished"
    return "ended" if state.status in TERMINAL else str(state.status)


def lost_records(state: RunState, call_dirs: Iterable[str], index_seq: int | None) -> str | None:
    """Say what shows that durable records are missing at the journal's end, or None.

    Args:
        state: As folded.
        call_dirs: The names in `calls/`: each was made after its ToolCallStarted was durable.
        index_seq: The seq that meta.json describes: it is written after that seq is durable.
    """
    if index_seq is not None and index_seq > state.seq:
        return f"meta.json knows record {index_seq}, the journal ends at {state.seq}"
    known = {call.call_id: call.started for call in state.calls}
    for name in call_dirs:
        if not is_call_id(name):
            continue
        turn = int(name[1:].partition("c")[0])
        if turn > state.turns or (turn == state.turns and not known.get(name)):
            return f"calls/{name} is there, but the journal does not know that the call was handed over"
    return None


def finished(state: RunState) -> RunEnded | None:
    """Return the RunEnded that is missing of a run whose last turn ended it, or None."""
    decision = step.stage_end(state)
    if not isinstance(decision, step.End):
        return None
    return next((record for record in step.written(decision) if isinstance(record, RunEnded)), None)


def cause_of(state: RunState, boot_id: str) -> Cause:
    """Return why the run's last process stopped working on it."""
    if state.drained:
        return Cause.RESTART
    if state.claim is not None and state.claim["boot_id"] != boot_id:
        return Cause.REBOOT
    return Cause.CRASH


def settle(call: CallState, turn: Turn, evidence: Evidence, policy: Policy) -> ToolCallDone | None:
    """Return how one unsettled call is settled; None when it is alive and to be adopted. The first row decides."""
    if evidence.found is Found.ALIVE:
        return None
    if evidence.found is Found.RESULT and evidence.done is not None:
        return evidence.done
    handed_over = call.started or evidence.found in (Found.FENCED, Found.LOST)
    same_boot = evidence.boot_id == (call.boot_id or policy.boot_id)
    if evidence.found is Found.FENCED and same_boot:
        return _settled(call, Outcome.NOT_STARTED, NOT_STARTED, "its launcher never started", evidence)
    if handed_over or turn.gap:
        reason = "in flight when the previous session ended" if handed_over else "beside a damaged place of the journal"
        return _settled(call, Outcome.INTERRUPTED, INTERRUPTED, reason, evidence)
    return _settled(call, Outcome.NOT_STARTED, NOT_STARTED, "never handed over", evidence)


def _settled(call: CallState, outcome: Outcome, text: str, reason: str, evidence: Evidence) -> ToolCallDone:
    if partial := (evidence.facts or {}).get("output_so_far"):
        text = f"{text}\nWhat it had printed so far:\n{partial}"
    if outcome is Outcome.INTERRUPTED and (file := (evidence.facts or {}).get("file")):
        text = f"{text} {file}"
    if call.edited is not None:
        text = f"{text}\n{edit_of(call)}"
    return ToolCallDone(
        call_id=call.call_id,
        outcome=outcome,
        result=text,
        is_error=True,
        settled_by=SettledBy.RECOVERY,
        duration_s=0.0,
        reason=reason,
        evidence=evidence.facts,
    )


_NOTHING = Evidence(found=Found.NOTHING)


def _settle_all(
    state: RunState, evidence: Mapping[str, Evidence], policy: Policy
) -> tuple[tuple[Record, ...], tuple[str, ...], bool]:
    """Return the settlements, the calls to adopt, and whether something was interrupted that the model waits for."""
    turn = state.turn
    if turn is None:
        return (), (), False
    records: list[Record] = []
    if not turn.batch and turn.asks:
        # Torn between the turn and its batch: the intent is written down now, only to be settled as never started.
        records.append(_missing_batch(turn))
        calls = unbatched_calls(turn)
    else:
        calls = state.open_calls
    adopt: list[str] = []
    pending = _bound_calls(state) | {call.call_id for call in state.open_calls if state.reruns(call)}
    for call in calls:
        if call.call_id in pending:
            continue  # pending again under its own id
        done = settle(call, turn, evidence.get(call.call_id, _NOTHING), policy)
        if done is None:
            adopt.append(call.call_id)
        else:
            records.append(done)
    unfinished = any(isinstance(r, ToolCallDone) and r.settled_by is SettledBy.RECOVERY for r in records)
    return tuple(records), tuple(adopt), unfinished


def unbatched_calls(turn: Turn) -> list[CallState]:
    """Return the calls of a turn whose ToolBatch is missing, unsettled, as its batch would have held them."""
    calls = calls_of(turn)
    for call in calls:
        call.outcome, call.result = None, ""
    return calls


def _missing_batch(turn: Turn) -> ToolBatch:
    calls = [
        Call(
            call_id=call.call_id,
            provider_id=call.provider_id,
            name=call.name,
            arguments=call.arguments,
            effect=Effect.UNKNOWN,
        ).to_json()
        for call in unbatched_calls(turn)
    ]
    return ToolBatch(turn=turn.turn, calls=calls)


def _only_waits(state: RunState) -> bool:
    """Whether nothing was under way but the end of a stage or a question to a human.

    Answered or not, whatever was said to it meanwhile: what follows is read from the journal, and a notice would set
    the model to work once more.
    """
    if state.inferring or any(call.started for call in state.open_calls):
        return False
    held_back = any(q.kind == Kind.RESTART and q.closed is None for q in state.interactions.values())
    return held_back or bool(_bound_calls(state)) or step.rested(state) or step.stage_end(state) is not None


def _bound_calls(state: RunState) -> set[str]:
    """Return the open calls that were not handed over and that a human was asked about."""
    return {call.call_id for call in state.open_calls if not call.started and question_of(state, call) is not None}


def _was_interrupted(state: RunState, adopt: tuple[str, ...], interrupted: bool) -> bool:
    """A run that only waited (for a retry, or for calls that are adopted), or was drained between steps, was not."""
    if interrupted or (state.untold and state.revived_by_hand):
        return True
    if state.drained or adopt or state.claim is None:
        return False
    return state.retry_at is None


def _refusal(state: RunState, policy: Policy, charged: bool) -> RecoveryPlan | None:
    cap = policy.max_revivals
    if cap is not None and charged and state.charged_revivals >= cap:
        reason = f"revival-cap: it was revived {state.charged_revivals} times, max_revivals is {cap}"
        return RecoveryPlan(verdict=Verdict.QUARANTINE, reason=reason)
    if charged and state.stalled_revivals >= policy.max_stalled_revivals:
        reason = f"it was revived {state.stalled_revivals} times in a row without progress"
        return RecoveryPlan(verdict=Verdict.QUARANTINE, reason=reason)
    return None


def damage_of(state: RunState, loss: str | None) -> str | None:
    """Say what of the journal a human has to decide on; `loss` is what `lost_records` says."""
    if loss is not None or not state.gap_since_turn:
        return loss
    place = state.damage[-1]
    return f"the journal is damaged at byte {place.offset}, after the newest turn: {place.what}"
