"""What holds for every history that a recovery, or a human, brings back: it comes to its end, and honestly."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onward.core import fold
from onward.core.inspection import by_hand, judge, refusals, revive_refused
from onward.core.plan import Policy, Verdict, plan
from onward.core.state import RunState
from onward.core.step import End, Infer, Park, Rest, WaitUntil, Write
from onward.core.vocabulary import Needs
from onward.testing.strict import check_request
from tests.core import journals as j
from tests.core.acting import Daemon, as_line, evidence, histories
from tests.core.journals import Json, text
from tests.core.test_properties import ENDS, EXAMPLES, many, states_of

STEPS = 300
some = settings(max_examples=max(5, EXAMPLES // 3), suppress_health_check=list(HealthCheck))


def to_the_end(daemon: Daemon) -> None:
    """Let the next daemon, a plain model and a patient human bring the run to its end."""
    for _ in range(STEPS):
        if not daemon.alive:
            daemon.act("boot", 0)
        assert check_request(daemon.state.conversation.request()) == []
        if daemon.state.status in ENDS:
            return
        one_step(daemon)
    raise AssertionError(f"after {STEPS} steps the run is {daemon.state.status}: {daemon._next()}")


def one_step(daemon: Daemon) -> None:
    """Carry out what is next; who is asked to say something says it."""
    step = daemon._next()
    if any(call.started for call in daemon.state.open_calls):
        daemon.act("finish", 1)
    elif isinstance(step, Infer):
        daemon.write(j.inferring(step.attempt))
        daemon.write(j.turn(daemon.state.turns + 1, text("done"), seen=daemon.state.seq))
    elif isinstance(step, WaitUntil):
        daemon.write(j.control("RunResumed"))
    elif isinstance(step, Rest):
        for record in by_hand(daemon.state, "anna"):
            daemon.write(record.to_json())
    elif isinstance(step, Park):
        daemon.act("write", 0)
        if step.needs == Needs.HUMAN:
            daemon.write(j.said(f"go on, {len(daemon.records)}"))
    elif isinstance(step, End):
        daemon.write(j.ended(str(step.status), result=step.result))
    else:
        daemon.act("write" if isinstance(step, Write) else "go_on", 0)


@many
@given(histories(), st.integers(0, 1 << 20))
def test_every_history_comes_to_its_end(daemon: Daemon, at: int) -> None:
    """Cut wherever a power cut may cut it: it ends, no call starts twice or after its settlement, all are settled."""
    if daemon.alive:
        daemon.act("power", at)
    to_the_end(daemon)

    handed_over: list[str] = []
    settled: set[str] = set()
    asked: set[str] = set()
    for record in daemon.records:
        if record["type"] == "ToolCallStarted":
            assert record["call_id"] not in settled
            handed_over.append(record["call_id"])
        elif record["type"] == "ToolCallDone":
            settled.add(record["call_id"])
        elif record["type"] == "ToolBatch":
            asked |= {call["call_id"] for call in record["calls"]}
    assert len(handed_over) == len(set(handed_over))
    # A turn that answered is over with its calls; of a cancelled run, what was never handed over may stay open.
    open_calls = {call.call_id for call in daemon.state.open_calls}
    assert asked - settled <= open_calls | {call for call in asked if not call.startswith(f"t{daemon.state.turns}c")}
    assert not open_calls or daemon.state.status == "cancelled"


@some
@given(histories(), st.integers(0, 1 << 20))
def test_a_file_that_ends_anywhere_is_the_run_that_its_whole_records_make(daemon: Daemon, at: int) -> None:
    """Prefix-stable: what comes later changes nothing of what was read before."""
    lines = [as_line(record) for record in daemon.records]
    data = b"".join(lines)
    cut = len(lines[0]) + at % (len(data) - len(lines[0]) + 1)
    whole, end = 0, 0
    for line in lines:
        end += len(line)
        whole += end - 1 <= cut
    assert j.replay(data[:cut]).state == states_of(daemon.records[:whole])[-1]


@some
@given(histories())
def test_charged_revivals_stay_within_the_cap(daemon: Daemon) -> None:
    """Crash and reboot are charged, a restart and a human are not; a human's revive begins anew."""
    charged = 0
    for record in daemon.records:
        if record["type"] == "RunRevived":
            assert record["charged"] == (record["cause"] in ("crash", "reboot"))
            charged = 0 if record["cause"] == "manual" else charged + record["charged"]
            assert charged <= (daemon.policy.max_revivals or 0)


@some
@given(histories())
def test_a_revive_by_hand_is_the_only_revival_of_the_entry_after_it(daemon: Daemon) -> None:
    """Between it and the next claim nobody else revives; behind that claim the run is one like any other."""
    state = RunState()
    for record in daemon.records:
        if record["type"] == "RunRevived" and record["cause"] != "manual":
            assert not state.revived_by_hand
        before = state.revived_by_hand
        fold.apply(state, record)
        assert not (record["type"] == "RunClaimed" and state.revived_by_hand)
        claimed_for_it = record["type"] == "RunClaimed" and before
        if claimed_for_it:
            assert state.charged_revivals == 0


@some
@given(histories(), st.integers(0, 63), st.sampled_from([None, 0, 1, 5]))
def test_the_verdict_agrees_with_the_plan(daemon: Daemon, n: int, cap: int | None) -> None:
    """Revivable is what recovery enters; the first reason by rank is the answer; what passes by hand is active then."""
    state = j.replay(daemon.data).state
    policy = Policy(boot_id="boot-9", max_revivals=None)
    decided = plan(state, evidence(state, n, policy), policy)
    found = judge("x", state, decided, loss=None, live=False, cap=cap, torn=None)

    if found.revivable:
        assert decided.verdict in (Verdict.ENTER, Verdict.ASK, Verdict.STOP)
        assert found.by_hand
    if decided.verdict in (Verdict.LEAVE, Verdict.END, Verdict.PARK, Verdict.QUARANTINE):
        assert not found.revivable
    reasons = [refusal.reason for refusal in refusals(state, decided, loss=None, live=False, cap=cap)]
    assert found.reason == (reasons[0] if reasons else found.reason)
    order = ["damaged", "finished", "ended", "live", "paused", "waiting", "parked", "quarantined", "revival-cap"]
    assert [order.index(reason) for reason in reasons] == sorted(map(order.index, reasons))
    assert not found.by_hand or revive_refused(state, loss=None, live=False, cap=None) is None
    after: list[Json] = [record.to_json() for record in by_hand(state, "anna")] if found.by_hand else []
    assert j.fold_all(after, state).status == ("active" if found.by_hand else state.status)
