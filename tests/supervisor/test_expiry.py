"""Questions that expire: a denial, told apart from a human's, and never before somebody could answer."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from onward.errors import Conflict
from onward.testing.clocks import FakeClock
from tests.supervisor.desk import Desk, settled

ASKS = 'tools = ["shell", "ask_user"]\nquestion_expires_s = 100\n[permissions]\nshell = "ask"'
SHELL: dict[str, Any] = {"calls": [{"name": "shell", "arguments": {"command": "git push"}}]}
DONE = {"text": "Done."}


def later(clock: FakeClock, seconds: float) -> None:
    """Let time pass as it does while no daemon runs: nobody's monotonic clock counts it."""
    clock._start += timedelta(seconds=seconds)


async def denied(desk: Desk) -> None:
    await desk.until(status="completed")
    (done,) = await desk.records("ToolCallDone")
    assert (done["outcome"], done["settled_by"], done["reason"]) == ("denied", "policy", "expired")
    assert [record["reason"] for record in await desk.records("InteractionClosed")] == ["it expired"]
    assert await desk.records("InteractionAnswered") == []
    assert desk.processes.launched == []
    with pytest.raises(Conflict, match="no longer open: it expired"):
        await desk.answer(decision="approve")


async def test_a_question_that_nobody_answers_in_time_is_denied(tmp_path: Path) -> None:
    """Not a second before."""
    desk = Desk(tmp_path, [SHELL, DONE], ASKS)
    async with desk.serving():
        await desk.start()
        question = await desk.until_asked()
        assert question["expires_at"] == "2026-01-01T00:01:40.000000Z"
        desk.clock.advance(99)
        await settled()
        assert (await desk.until_asked()) == question
        desk.clock.advance(2)
        await denied(desk)


@pytest.mark.parametrize("known", [True, False], ids=["listed", "folded"])
@pytest.mark.parametrize("answered", [True, False])
async def test_a_question_that_expired_while_nobody_served_can_be_answered_for_a_minute(
    tmp_path: Path, known: bool, answered: bool
) -> None:
    """Whether the run's index could be believed or the run had to be read."""
    desk = Desk(tmp_path, [SHELL, DONE], ASKS)
    async with desk.serving():
        await desk.start()
        question = await desk.until_asked()
    later(desk.clock, 3600)
    if not known:
        desk.store.runs[desk.run_id].index = None
    async with desk.serving():
        assert await desk.until_asked() == question
        desk.clock.advance(59)
        await settled()
        assert await desk.until_asked() == question
        assert len(await desk.records("RunClaimed")) <= 2
        if answered:
            await desk.answer(decision="approve")
            await desk.until(status="completed")
            assert [spec.argv[-1] for spec in desk.processes.launched] == ["git push"]
        else:
            desk.clock.advance(2)
            await denied(desk)


async def test_a_message_in_that_minute_does_not_let_the_question_expire(tmp_path: Path) -> None:
    """The run is looked at, and waits on."""
    desk = Desk(tmp_path, [SHELL, DONE], ASKS)
    async with desk.serving():
        await desk.start()
        await desk.until_asked()
    later(desk.clock, 3600)
    async with desk.serving() as supervisor:
        await supervisor.send(desk.run_id, "well?", by="me")
        await desk.until_asked()
        desk.clock.advance(61)
        await denied(desk)


async def test_a_question_that_does_not_expire_waits(tmp_path: Path) -> None:
    """However long it takes."""
    desk = Desk(tmp_path, [SHELL, DONE], ASKS.replace("question_expires_s = 100\n", ""))
    async with desk.serving():
        await desk.start()
        question = await desk.until_asked()
        desk.clock.advance(10_000_000)
        await settled()
        assert await desk.until_asked() == question


async def test_a_question_does_not_expire_in_the_minute_after_the_clock_was_moved(tmp_path: Path) -> None:
    """A message lets the run be looked at; the hours that nobody lived through are not held against the human."""
    desk = Desk(tmp_path, [SHELL, DONE], ASKS)
    async with desk.serving() as supervisor:
        await desk.start()
        await desk.until_asked()
        desk.clock.advance(70)
        await settled()
        later(desk.clock, 3600)
        desk.clock.advance(1)
        await settled()
        await supervisor.send(desk.run_id, "well?", by="me")
        await settled()
        await desk.until_asked()
        desk.clock.advance(59)
        await settled()
        await desk.until_asked()
        desk.clock.advance(2)
        await denied(desk)


@pytest.mark.parametrize("failure", ["quota", "network"], ids=["parked", "waiting"])
@pytest.mark.parametrize("living", [True, False])
async def test_a_clock_that_is_set_back_makes_no_wait_longer(tmp_path: Path, failure: str, living: bool) -> None:
    """The time of the next try lies a month ahead then; a parked run is looked at within half an hour."""
    desk = Desk(tmp_path, [{"text": "Done.", "fail": failure, "fail_times": 1}])
    async with desk.serving():
        await desk.start()
        await desk.until(status="parked" if failure == "quota" else "waiting")
        await settled()
        if living:
            later(desk.clock, -30 * 86_400)
            desk.clock.advance(1800)
            await desk.until(status="completed")
            return
    later(desk.clock, -30 * 86_400)
    async with desk.serving():
        await settled()
        desk.clock.advance(1800)
        await desk.until(status="completed")
    revived = await desk.records("RunRevived")
    assert revived == []  # it only waited
