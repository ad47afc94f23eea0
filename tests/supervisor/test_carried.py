"""What a restart does not launder: money, turns, active time, retries and revivals are carried on from the journal."""

from pathlib import Path
from typing import Any

import pytest

from onward.core.records import Json
from tests.supervisor.desk import Desk
from tests.support import eventually

LS: Json = {"calls": [{"name": "shell", "arguments": {"command": "ls"}}]}
COSTS: Json = {"usage": {"input_tokens": 10, "output_tokens": 5, "cost_usd": 0.6}}
WAITS: Json = {"text": "waited", "delay_s": 3600}
DONE: Json = {"text": "Done."}


async def until_at_turn(desk: Desk, turns: int) -> None:
    """Wait until the model is asked for the turn after this one, and does not answer."""
    await eventually(lambda: len(desk.asked) > turns)
    await desk.until(turn=turns)


@pytest.mark.parametrize(
    ("limits", "reached"),
    [({"cost_usd": 1.0}, "cost_usd"), ({"tokens": 25}, "tokens"), ({"turns": 2}, "turns"), ({"tool_calls": 2}, "tool")],
    ids=["cost", "tokens", "turns", "calls"],
)
async def test_what_was_used_before_a_crash_counts_after_it(limits: Json, reached: str, tmp_path: Path) -> None:
    """Half of the limit in each life: the second life reaches it, and a human's revive does not take it back."""
    first, second = LS | COSTS, LS | COSTS | {"delay_s": 5}
    desk = Desk(tmp_path, [first, second, DONE], 'tools = ["shell"]')
    async with desk.serving():
        await desk.start(limits=limits)
        await until_at_turn(desk, 1)
    async with desk.serving():
        await eventually(lambda: len(desk.asked) > 2)
        await desk.until(turn=1)
        await eventually(lambda: desk.clock.sleepers)
        desk.clock.advance(5)
        shown = await desk.until(status="parked", needs="budget")
        assert reached in shown["error"]
        used = [shown["totals"][name] for name in ("cost_usd", "tokens_in", "tool_calls")]
        told = await desk.supervisor.revive(desk.run_id, by="anna")
        assert told["revival"]["reason"] == "parked"
        shown = await desk.until(status="parked", needs="budget")
        assert [shown["totals"][name] for name in ("cost_usd", "tokens_in", "tool_calls")] == used
    assert len(desk.asked) == 3


async def test_a_wait_for_a_retry_is_not_cut_short_and_its_count_goes_on(tmp_path: Path) -> None:
    """Who waits for a provider when the daemon dies asks no sooner, counts on, and is not told."""
    desk = Desk(tmp_path, [DONE | {"fail": "overloaded", "fail_times": 2}])
    async with desk.serving():
        await desk.start()
        shown = await desk.until(status="waiting", waiting_on="timer")
    asked = len(desk.asked)
    async with desk.serving():
        assert (await desk.until(status="waiting", waiting_on="timer"))["wake_at"] == shown["wake_at"]
        assert len(desk.asked) == asked
        await eventually(lambda: desk.clock.sleepers)
        desk.clock.advance(30)
        await eventually(lambda: len(desk.asked) == asked + 1)
        await desk.until(status="waiting", waiting_on="timer")
        await eventually(lambda: desk.clock.sleepers)
        desk.clock.advance(30)
        await desk.until(status="completed")
    failures = await desk.records("InferenceFailed")
    assert len(failures) == 2
    assert [record["attempt"] for record in await desk.records("InferenceStarted")] == [1, 2, 3]
    assert await desk.records("RunRevived") == []


async def test_revivals_are_counted_over_restarts_until_a_human_revives(tmp_path: Path) -> None:
    """Two charged ones are allowed: the third boot puts it aside; then all counts begin anew."""
    limits = "[limits]\nmax_revivals = 2\nmax_stalled_revivals = 9"
    desk = Desk(tmp_path, [WAITS], limits)
    for life in range(3):
        async with desk.serving():
            if life == 0:
                await desk.start()
            await eventually(lambda: len(desk.asked) == life + 1)  # noqa: B023  # asked within this life
    async with desk.serving():
        shown = await desk.until(status="quarantined")
        assert "revival-cap" in shown["error"]
        await desk.supervisor.revive(desk.run_id, by="anna")
        await eventually(lambda: len(desk.asked) == 4)
    for life in range(2):
        async with desk.serving():
            await eventually(lambda: len(desk.asked) == life + 5)  # noqa: B023  # asked within this life
    causes: list[Any] = [record["cause"] for record in await desk.records("RunRevived")]
    assert causes == ["crash", "crash", "manual", "crash", "crash"]
    notices = [said for said in await desk.records("MessageAdded") if said["source"] == "revival"]
    assert len(notices) == 1  # it has not thought since
    async with desk.serving():
        await desk.until(status="quarantined")
