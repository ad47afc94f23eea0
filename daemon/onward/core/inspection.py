"""What recovery would do with a run, in one word and in full; and what a human's revive may do against it. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain

from onward.core.plan import RecoveryPlan, Verdict, damage_of, finished
from onward.core.records import Record, RunRevived, ToolCallDone
from onward.core.state import Damage, RunState
from onward.core.status import TERMINAL, Status
from onward.core.step import waits_for_human
from onward.core.vocabulary import Cause


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """The answer about one run.

    `reason` is one of: unreadable, damaged, newer, finished, ended, live, paused, waiting, parked, quarantined,
    revival-cap (all not revivable), interrupted, continues (revivable). `revivable` says whether a daemon that starts
    goes on with it, `by_hand` whether a human's revive does. `calls` says of each unsettled call how it would be
    settled; `adopted` stands for one whose process is still alive. `damage` and `torn` say where the journal is bad.
    `held` is why a daemon would let it wait for `onward release` before it goes on.
    """

    run_id: str
    revivable: bool
    reason: str
    detail: str = ""
    by_hand: bool = False
    status: str = ""
    turns: int = 0
    revivals: int = 0
    """The charged ones since a human last revived it."""
    calls: dict[str, str] = field(default_factory=dict)
    damage: list[Damage] = field(default_factory=list)
    torn: str | None = None
    held: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Revival:
    """What a human's revive came to.

    `ok`: RunRevived(manual) is durable, and the run goes on when a daemon next enters it. Else nothing was written, and
    `reason` is a word of `Inspection`, or `unwritable` where the disk did not take the record.
    """

    ok: bool
    run_id: str
    reason: str
    """With `ok`, what it was revived from: interrupted, continues, or a reason that a human passes."""
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """One reason not to go on with a run. `by_hand`: a human's revive passes it."""

    reason: str
    detail: str
    by_hand: bool = False


def unusable(run_id: str, reason: str, detail: str) -> Inspection:
    """Return the answer about a run that cannot be folded."""
    return Inspection(run_id=run_id, revivable=False, reason=reason, detail=detail)


def unread(run_id: str, why: str, *, cap: int | None) -> Inspection:
    """Return the answer about a run that is not read, because a daemon died with it in hand."""
    refused = cap is not None and cap <= 0
    return Inspection(run_id=run_id, revivable=False, reason="quarantined", detail=why, by_hand=not refused)


def refusals(
    state: RunState, decided: RecoveryPlan | None, *, loss: str | None, live: bool, cap: int | None
) -> Iterator[Refusal]:
    """Yield every reason not to go on with a run, by rank: the first one is the answer.

    Args:
        state: As folded.
        decided: What `plan` says of it; None when a human revives it, whom the run's own caps do not bind.
        loss: What `lost_records` says.
        live: Somebody works on it now.
        cap: How many charged revivals the asker allows; None for any number.
    """
    over = state.status in TERMINAL
    if not over and (damage := damage_of(state, loss)):
        yield Refusal(reason="damaged", detail=damage, by_hand=True)
    if over or state.cancel_by is not None:
        yield _ended(state)
    elif state.status is Status.ACTIVE:
        yield from _at_work(state, decided, live=live)
    else:
        yield Refusal(reason=str(state.status), detail=state.reason or "", by_hand=True)
    if cap is not None and state.charged_revivals >= cap:
        detail = f"it was revived {state.charged_revivals} times, at most {cap} are allowed"
        yield Refusal(reason="revival-cap", detail=detail)


def _ended(state: RunState) -> Refusal:
    if state.status is Status.COMPLETED:
        return Refusal(reason="finished", detail=state.reason or "")
    if state.status in TERMINAL:
        detail = f"{state.status}: {state.reason or ''}"
        return Refusal(reason="ended", detail=detail, by_hand=state.status is Status.FAILED)
    return Refusal(reason="ended", detail=f"its cancel by {state.cancel_by} is only carried on")


def _at_work(state: RunState, decided: RecoveryPlan | None, *, live: bool) -> Iterator[Refusal]:
    if finished(state):
        yield Refusal(reason="finished", detail="only its end is not written down; the next start of a daemon does it")
    if live:
        yield Refusal(reason="live", detail="a daemon is working on it")
    if waits_for_human(state):
        asked = ", ".join(question.interaction_id for question in state.open_questions)
        yield Refusal(reason="waiting", detail=f"for an answer to {asked}")
    if decided is not None and decided.verdict is Verdict.QUARANTINE:
        reason = "revival-cap" if decided.reason.startswith("revival-cap") else "quarantined"
        yield Refusal(reason=reason, detail=decided.reason.removeprefix("revival-cap: "), by_hand=True)


def judge(
    run_id: str,
    state: RunState,
    decided: RecoveryPlan,
    *,
    loss: str | None,
    live: bool,
    cap: int | None,
    torn: str | None,
) -> Inspection:
    """Return the answer about a folded run.

    Args:
        run_id: The name of its directory.
        state: As folded.
        decided: What `plan` says of it.
        loss: What `lost_records` says.
        live: The process that claimed it last holds the runs directory now.
        cap: As for `refusals`.
        torn: What stands behind the last whole record, if anything.
    """
    refused = next(refusals(state, decided, loss=loss, live=live, cap=cap), None)
    calls = {item.call_id: str(item.outcome) for item in decided.settlements if isinstance(item, ToolCallDone)}
    return Inspection(
        run_id=run_id,
        revivable=refused is None,
        reason=refused.reason if refused else _goes_on(decided),
        detail=refused.detail if refused else _how(decided),
        by_hand=revive_refused(state, loss=loss, live=live, cap=cap) is None,
        status=str(state.status),
        turns=state.turns,
        revivals=state.charged_revivals,
        calls={**calls, **dict.fromkeys(decided.adopt, "adopted")},
        damage=list(state.damage),
        torn=torn,
    )


def revive_refused(state: RunState, *, loss: str | None, live: bool, cap: int | None) -> Refusal | None:
    """Return the first reason that not even a human's revive passes, or None; arguments as for `refusals`."""
    found = refusals(state, None, loss=loss, live=live, cap=cap)
    return next((refusal for refusal in found if not refusal.by_hand), None)


def by_hand(state: RunState, by: str) -> list[Record]:
    """Return what a human's revive writes: nothing, where it was revived already and nothing has begun since."""
    if state.revived_by_hand and state.status is Status.ACTIVE:
        return []
    return [RunRevived(attempt=state.revival_attempts + 1, cause=Cause.MANUAL, charged=False, by=by)]


def revived(state: RunState, *, loss: str | None) -> Revival:
    """Return what is told of a revive that nothing refused. Ask before the record is applied."""
    found = refusals(state, None, loss=loss, live=False, cap=None)
    at_rest = state.drained or state.claim is None or state.retry_at is not None
    plain = Refusal(reason="continues" if at_rest else "interrupted", detail="")
    passed = next(chain(found, [plain]))
    return Revival(ok=True, run_id=state.run_id, reason=passed.reason, detail=passed.detail)


def out_of_quarantine(told: Revival, why: str) -> Revival:
    """Return what is told of the revive of a run that was not even read: it may also need nothing more than that."""
    if told.ok or told.reason in ("waiting", "finished", "ended"):
        return replace(told, ok=True, reason="quarantined", detail=why)
    return told


def _goes_on(decided: RecoveryPlan) -> str:
    return "continues" if decided.notice is None and decided.revived is None else "interrupted"


def _how(decided: RecoveryPlan) -> str:
    if decided.verdict is Verdict.STOP:
        return f"{decided.reason}; it would be paused (on_restart)"
    if decided.verdict is Verdict.ASK:
        return f"{decided.reason}; a human would be asked first (on_restart)"
    return decided.reason
