"""What a run does next: calls, limits, waiting, the end."""

import pytest

from onward.core.state import RunState
from onward.core.step import End, Infer, Park, Rest, RunCalls, Step, WaitUntil, next_step
from tests.core import journals as j
from tests.core.journals import Json, text, use

NOW = "2026-12-01T12:00:00.000000Z"
EARLIER = "2026-12-01T11:59:59.999999Z"
LATER = "2026-12-01T12:00:00.000001Z"
MODEL = "p/m"


def step_after(*records: Json, limits: Json | None = None, active_s: float = 0.0, workers: int = 4) -> Step:
    state = j.fold_all([j.started(limits=limits or {}), j.claimed(), *records])
    return next_step(state, now=NOW, active_s=active_s, workers=workers)


def started_now(step: Step) -> list[str]:
    assert isinstance(step, RunCalls)
    return [call.call_id for call in step.start]


# r: reads, w: changes something; a capital letter: handed over and running; '.': settled.
SCHEDULES = [
    ("r", 4, [1]),
    ("w", 4, [1]),
    ("rrr", 4, [1, 2, 3]),
    ("rrrrr", 2, [1, 2]),
    ("Rrrr", 2, [2]),
    ("RRrr", 2, []),
    ("R.rr", 2, [3]),
    ("ww", 4, [1]),
    ("Ww", 4, []),
    (".w", 4, [2]),
    ("rrw", 4, [1, 2]),
    ("RRw", 4, []),
    ("R.w", 4, []),
    ("..w", 4, [3]),
    ("wr", 4, [1]),
    ("Wr", 4, []),
    (".rwr", 4, [2]),
    (".Rwr", 4, []),
    ("..wr", 4, [3]),
    ("..Wr", 4, []),
    ("...r", 4, [4]),
    ("rwrr", 1, [1]),
    ("Rw", 1, []),
]


@pytest.mark.parametrize("changing", ["write", "idempotent", "unknown"])
@pytest.mark.parametrize(("calls", "workers", "start"), SCHEDULES)
def test_reads_run_side_by_side_and_others_alone_and_in_order(
    calls: str, workers: int, start: list[int], changing: str
) -> None:
    """A call that may change something waits for all before it, and all behind it wait for it."""
    effects = ["read" if kind in "rR" else changing for kind in calls]
    batch = [j.call(f"t1c{n}", effect=effect) for n, effect in enumerate(effects, 1)]
    records = [j.turn(1, *(use(c["call_id"]) for c in batch), seen=2), j.batch(1, *batch)]
    for n, kind in enumerate(calls, 1):
        records += [j.handed_over(f"t1c{n}")] if kind in "RW" else [j.done(f"t1c{n}")] if kind == "." else []

    assert started_now(step_after(*records, workers=workers)) == [f"t1c{n}" for n in start]


def test_a_new_run_asks_the_model() -> None:
    """The first request is attempt 1, the next one after a failure attempt 2, after a turn again 1."""
    tools = [j.turn(1, use("a"), seen=2), j.batch(1, "t1c1"), j.done("t1c1")]

    assert step_after() == Infer(1, MODEL)
    assert step_after(j.inferring(), j.failed()) == Infer(2, MODEL)
    assert step_after(j.inferring(), *tools) == Infer(1, MODEL)


def test_a_failed_request_is_repeated_at_its_time() -> None:
    """Before it nothing is to be done."""
    waiting = step_after(j.inferring(), j.failed(LATER))

    assert isinstance(waiting, WaitUntil)
    assert waiting.retry_at == LATER
    assert step_after(j.inferring(), j.failed(NOW)) == Infer(2, MODEL)
    assert step_after(j.inferring(), j.failed(EARLIER)) == Infer(2, MODEL)


def test_a_turn_that_ended_by_itself_ends_the_run() -> None:
    """It asked for no tools and nothing was said since its request: its text is the result."""
    ended = step_after(j.turn(1, text("The answer"), {"type": "thinking", "thinking": "x"}, text("is 42."), seen=2))

    assert isinstance(ended, End)
    assert (ended.status, ended.result) == ("completed", "The answer\nis 42.")


def test_a_turn_that_says_nothing_ends_the_run_too() -> None:
    """An empty last answer is an end like any other."""
    ended = step_after(j.turn(1, seen=2))

    assert isinstance(ended, End)
    assert ended.status == "completed"


@pytest.mark.parametrize("stop_reason", ["max_tokens", "pause_turn", "tool_use", "x_future"])
def test_a_turn_that_was_cut_goes_on(stop_reason: str) -> None:
    """Only an end of the model's own is one."""
    assert step_after(j.turn(1, text("The ans"), seen=2, stop_reason=stop_reason)) == Infer(1, MODEL)


def test_a_message_that_the_last_turn_has_not_seen_is_answered_first() -> None:
    """What was acknowledged is never lost at the end, neither before the turn nor behind it."""
    assert step_after(j.said("also do X"), j.turn(1, text("done"), seen=2)) == Infer(1, MODEL)
    assert step_after(j.turn(1, text("done"), seen=2), j.said("also do X")) == Infer(1, MODEL)
    assert isinstance(step_after(j.said("also do X"), j.turn(1, text("done"), seen=3)), End)


def finish(*more: Json, status: str = "completed", outcome: str = "ok") -> list[Json]:
    asked = [j.turn(1, use("a"), use("b"), seen=2), j.batch(1, "t1c1", "t1c2")]
    return [*asked, j.done("t1c1", "It is done.", outcome, ends_run=status), *more]


CHAIN = {"model": "p/m", "agent": {"fallback": ["q/n"]}}
MUCH_LATER = "2026-12-01T13:00:00.000000Z"


@pytest.mark.parametrize(
    ("failures", "expected"),
    [
        ([("p/m", LATER)], Infer(2, "q/n")),
        ([("p/m", EARLIER)], Infer(2, "p/m")),
        ([("p/m", MUCH_LATER), ("q/n", LATER)], WaitUntil(LATER, "the provider is overloaded")),
        ([("p/m", LATER), ("q/n", MUCH_LATER)], WaitUntil(LATER, "the provider is overloaded")),
    ],
    ids=["falls back", "comes back", "waits for the first", "waits for the preferred"],
)
def test_the_first_model_that_is_not_cooling_down_is_asked(failures: list[tuple[str, str]], expected: Step) -> None:
    """A model that failed is left alone until its time; when all are, the run waits for the first of them."""
    records = [record for model, at in failures for record in (j.inferring(), j.failed(at) | {"model": model})]
    state = j.fold_all([j.started(**CHAIN), *records])

    step = next_step(state, now=NOW, active_s=0.0, workers=4)

    assert step == expected or (
        isinstance(step, Infer) and isinstance(expected, Infer) and step.model == expected.model
    )


def test_a_run_that_would_wait_long_is_parked_until_then() -> None:
    """A day of Retry-After holds no memory: the run is parked with the time at which it comes back."""
    step = step_after(j.inferring(), j.failed(MUCH_LATER) | {"failure": "auth"})

    assert isinstance(step, Park)
    assert (step.needs, step.retry_at) == ("key", MUCH_LATER)


def test_a_human_who_resumes_a_run_does_not_wait_for_a_cool_down() -> None:
    """The op says: try now."""
    resumed = [j.parked(), j.control("RunResumed") | {"by": "anna"}]

    assert step_after(j.inferring(), j.failed(MUCH_LATER), *resumed) == Infer(2, MODEL)


def test_a_cancel_waits_only_for_what_runs() -> None:
    """What runs is being ended; what was not handed over never runs."""
    asked = {"type": "CancelRequested", "by": "anna"}
    batch = [j.turn(1, *[j.use(f"t1c{n}") for n in (1, 2)], seen=2), j.batch(1, "t1c1", "t1c2"), j.handed_over("t1c1")]

    assert step_after(*batch, asked) == RunCalls(())
    ended = step_after(*batch, asked, j.done("t1c1"))
    assert isinstance(ended, End)
    assert (ended.status, ended.reason) == ("cancelled", "cancelled by anna")


@pytest.mark.parametrize("status", ["completed", "failed"])
def test_a_finish_call_ends_the_run_when_nothing_is_open(status: str) -> None:
    """Its result is the run's result, its word the status; the other calls of the batch are waited for."""
    assert started_now(step_after(*finish(status=status))) == ["t1c2"]
    ended = step_after(*finish(j.done("t1c2"), status=status))
    assert isinstance(ended, End)
    assert (ended.status, ended.reason, ended.result) == (status, "finish", "It is done.")


def test_a_finish_call_does_not_outrun_a_message() -> None:
    """What was said after the turn's request is answered first."""
    assert step_after(*finish(j.done("t1c2"), j.said("wait"))) == Infer(1, MODEL)


def test_a_finish_call_that_failed_ends_nothing() -> None:
    """The model sees its error and goes on."""
    assert step_after(*finish(j.done("t1c2"), outcome="error")) == Infer(1, MODEL)


def test_a_human_takes_an_end_back() -> None:
    """A run that failed by its own `finish` and is revived by a human goes on, and does not end again at once."""
    records = finish(j.done("t1c2"), j.ended("failed"), j.revived("manual"), status="failed")

    assert step_after(*records) == Infer(1, MODEL)


TOOLS = [j.turn(1, use("a"), seen=2), j.batch(1, "t1c1"), j.done("t1c1")]


@pytest.mark.parametrize(
    ("limits", "active_s", "reached"),
    [
        ({}, 1e9, False),
        ({"turns": None}, 0.0, False),
        ({"turns": 2}, 0.0, False),
        ({"turns": 1}, 0.0, True),
        ({"tool_calls": 2}, 0.0, False),
        ({"tool_calls": 1}, 0.0, True),
        ({"active_s": 60.0}, 59.9, False),
        ({"active_s": 60.0}, 60.0, True),
        ({"call_deadline_s": 0.1, "max_revivals": 0}, 5.0, False),
    ],
)
def test_a_reached_limit_parks_the_run(limits: Json, active_s: float, reached: bool) -> None:
    """No request goes out; the limit is named."""
    step = step_after(*TOOLS, limits=limits, active_s=active_s)

    if reached:
        assert isinstance(step, Park)
        assert step.needs == "budget"
        assert next(iter(limits)) in step.reason
    else:
        assert step == Infer(1, MODEL)


def test_a_limit_does_not_hide_an_end() -> None:
    """A run that ended within its limits is over, not parked."""
    assert isinstance(step_after(j.turn(1, text("done"), seen=2), limits={"turns": 1}), End)


@pytest.mark.parametrize(
    "record", [j.control("RunPaused"), j.parked(), j.control("RunQuarantined"), j.ended(), j.ended("failed")]
)
def test_a_run_that_is_not_active_rests(record: Json) -> None:
    """Nothing is done until somebody changes that."""
    assert isinstance(step_after(record), Rest)


def test_damage_after_the_newest_turn_is_asked_before_anything_else() -> None:
    """No call is handed over and no request made while a gap may hide an effect."""
    state: RunState = j.replay(j.Journal().add(j.started(), j.claimed(), *TOOLS[:2]).skip().add(j.said("x"))).state
    step = next_step(state, now=NOW, active_s=0.0, workers=4)

    assert isinstance(step, Park)
    assert step.needs == "damaged"


def test_a_conversation_that_cannot_fit_is_not_sent() -> None:
    """A request that must be refused is not made again and again."""
    state = j.fold_all([j.started(task="word " * 10_000), j.claimed()])

    assert isinstance(next_step(state, now=NOW, active_s=0.0, workers=4, window_tokens=2_000), Park)
    assert next_step(state, now=NOW, active_s=0.0, workers=4, window_tokens=200_000) == Infer(1, MODEL)
