"""What recovery would do with a run, in one word and in full. Pure."""

from dataclasses import dataclass, field

from onward.core.plan import RecoveryPlan, Verdict, leave_reason
from onward.core.records import ToolCallDone
from onward.core.state import Damage, RunState
from onward.core.status import Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """The answer about one run.

    `reason` is one of: unreadable, damaged, newer, finished, ended, live, paused, parked, quarantined, revival-cap
    (all not revivable), interrupted, continues (revivable). `calls` says of each unsettled call how it would be
    settled; `adopted` stands for one whose process is still alive.
    """

    run_id: str
    revivable: bool
    reason: str
    detail: str = ""
    status: str = ""
    turns: int = 0
    revivals: int = 0
    calls: dict[str, str] = field(default_factory=dict)
    damage: list[Damage] = field(default_factory=list)
    torn: str | None = None


def unusable(run_id: str, reason: str, detail: str) -> Inspection:
    """Return the answer about a run that cannot be folded."""
    return Inspection(run_id=run_id, revivable=False, reason=reason, detail=detail)


def judge(
    run_id: str, state: RunState, decided: RecoveryPlan, *, live: bool, cap: int | None, torn: str | None
) -> Inspection:
    """Return the answer about a folded run.

    Args:
        run_id: The name of its directory.
        state: As folded.
        decided: What `plan` says of it.
        live: The process that claimed it last holds the runs directory now.
        cap: How many charged revivals are allowed; None for any number.
        torn: What stands behind the last whole record, if anything.
    """
    reason, detail = _reason(state, decided, live=live, cap=cap)
    calls = {item.call_id: str(item.outcome) for item in decided.settlements if isinstance(item, ToolCallDone)}
    return Inspection(
        run_id=run_id,
        revivable=reason in ("interrupted", "continues"),
        reason=reason,
        detail=detail,
        status=str(state.status),
        turns=state.turns,
        revivals=state.charged_revivals,
        calls={**calls, **dict.fromkeys(decided.adopt, "adopted")},
        damage=list(state.damage),
        torn=torn,
    )


def _reason(state: RunState, decided: RecoveryPlan, *, live: bool, cap: int | None) -> tuple[str, str]:
    if decided.verdict is Verdict.PARK:
        return "damaged", decided.reason
    if decided.verdict is Verdict.END:
        return "finished", "only its end is not written down"
    if decided.verdict is Verdict.LEAVE and state.status is not Status.ACTIVE:
        return leave_reason(state), state.reason or ""
    if live:
        return "live", "a daemon is working on it"
    if cap is not None and state.charged_revivals >= cap:
        return "revival-cap", f"it was revived {state.charged_revivals} times, at most {cap} are allowed"
    if decided.verdict is Verdict.QUARANTINE:
        return "quarantined", decided.reason
    return ("interrupted" if decided.revived is not None else "continues"), decided.reason
