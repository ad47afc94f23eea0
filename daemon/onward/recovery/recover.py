"""Carrying out a recovery plan: every entry of a run passes through here, the first one too."""

from dataclasses import dataclass, replace

from onward.core.interactions import DECISIONS, Kind
from onward.core.plan import Policy, RecoveryPlan, Verdict, finished, lost_records, plan
from onward.core.records import (
    InteractionOpened,
    Json,
    MessageAdded,
    Record,
    RunClaimed,
    RunParked,
    RunPaused,
    RunQuarantined,
)
from onward.core.state import RunState
from onward.core.status import TERMINAL, Status
from onward.core.vocabulary import Needs, Source
from onward.native.ports import Recorder
from onward.ports.process import EndedBy, ProcessSpawner
from onward.ports.store import Beside, RunStore
from onward.recovery.evidence import gather


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimant:
    """This process, as RunClaimed names it."""

    machine_id: str
    runs_inode: int
    boot_id: str
    pid: int
    start_ticks: int


def policy_for(state: RunState, boot_id: str) -> Policy:
    """Return the caps that the run was started with."""
    limits = state.limits
    return Policy(
        boot_id=boot_id,
        max_revivals=limits.get("max_revivals"),
        max_stalled_revivals=limits.get("max_stalled_revivals", 3),
    )


async def recover(
    recorder: Recorder, store: RunStore, spawner: ProcessSpawner, claimant: Claimant, beside: Beside
) -> RecoveryPlan:
    """Plan, write what the plan says, and return it. After it the run is entered, ended or left.

    The order of writes makes every step repeatable: RunRevived is durable before any settlement, so that each try is
    counted; each settlement stands for itself; dying in between and recovering again settles nothing twice.
    """
    state = recorder.state
    if state.cancel_by is not None:
        for call in state.open_calls:
            await spawner.end(store.call_dir(state.run_id, call.call_id), by=EndedBy.CANCEL)
    evidence = await gather(state, store, spawner, beside.call_dirs)
    loss = lost_records(state, beside.call_dirs, beside.index_seq)
    decided = plan(state, evidence, policy_for(state, claimant.boot_id), loss=loss)
    if decided.verdict is Verdict.LEAVE:
        return decided
    await recorder.write(lambda: _first_records(decided, state, claimant))
    if decided.revived is not None:
        await recorder.append_durably()
    for settlement in decided.settlements:
        await recorder.append(settlement)
    if _last_records(decided, state):
        await recorder.act(lambda: _last_records(decided, state))
    if decided.verdict is Verdict.END and state.status not in TERMINAL:
        return replace(decided, verdict=Verdict.ENTER)  # something was said to it meanwhile
    return decided


def _claim(state: RunState, claimant: Claimant) -> RunClaimed:
    return RunClaimed(
        machine_id=claimant.machine_id,
        runs_inode=claimant.runs_inode,
        boot_id=claimant.boot_id,
        pid=claimant.pid,
        start_ticks=claimant.start_ticks,
        epoch=state.claims + 1,
    )


def _asked(state: RunState, kind: Kind, prompt: str, binds_to: Json) -> list[Record]:
    """Return the question to open, unless one of its kind is open."""
    if any(question.kind == kind for question in state.open_questions):
        return []
    return [
        InteractionOpened(
            interaction_id=f"q{len(state.interactions) + 1}",
            kind=kind,
            prompt=prompt,
            options=list(DECISIONS[kind]),
            binds_to=binds_to,
            ask={},
        )
    ]


def _first_records(decided: RecoveryPlan, state: RunState, claimant: Claimant) -> list[Record]:
    claim = _claim(state, claimant)
    return [claim, decided.revived] if decided.revived and not _put_aside(state) else [claim]


def _put_aside(state: RunState) -> bool:
    """Whether a human brought the run to rest while the plan was carried out: that counts."""
    return state.status is not Status.ACTIVE and state.cancel_by is None


def _last_records(decided: RecoveryPlan, state: RunState) -> list[Record]:
    if _put_aside(state):
        return []
    records: list[Record] = []
    if decided.notice is not None:
        message_id = f"revival-{state.revival_attempts}"
        records.append(MessageAdded(message_id=message_id, source=Source.REVIVAL, content=decided.notice, by="daemon"))
    if decided.ended is not None and (state.cancel_by is not None or finished(state) is not None):
        records.append(decided.ended)
    if decided.verdict is Verdict.PARK:
        needs = decided.needs or Needs.DECISION
        records += _asked(state, Kind.DAMAGE, f"{decided.reason.capitalize()}. Go on?", {"damage": decided.reason})
        records.append(RunParked(by="daemon", reason=decided.reason, needs=needs))
    if decided.verdict is Verdict.ASK:
        prompt = f"The run was {decided.reason}. Go on with it?"
        records += _asked(state, Kind.RESTART, prompt, {"revival": state.revival_attempts})
    if decided.verdict is Verdict.QUARANTINE:
        records.append(RunQuarantined(by="daemon", reason=decided.reason))
    if decided.verdict is Verdict.STOP:
        records.append(RunPaused(by="on_restart", reason="the run was interrupted and on_restart is stop"))
    return records
