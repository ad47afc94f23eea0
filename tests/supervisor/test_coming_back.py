"""How runs come back after a crash: at a bounded rate, and as their `on_restart` says."""

from pathlib import Path

import pytest

from onward.core.records import Json
from onward.core.times import stamp
from onward.errors import Conflict
from tests.supervisor.desk import Desk, settled
from tests.support import eventually

SLOW = {"text": "Done.", "delay_s": 1000}
DONE = {"text": "Done."}


async def interrupted(desk: Desk, number: int = 1, **members: object) -> None:
    """Leave runs behind that were asking their model when the daemon died."""
    async with desk.serving():
        for _ in range(number):
            await desk.start(**members)
        await eventually(lambda: len(desk.asked) == number)
        await settled()
    desk.asked.clear()


async def begun(desk: Desk, number: int) -> None:
    """Let so many runs ask their model, and no more."""
    await eventually(lambda: len(desk.asked) >= number)
    await settled()
    assert len(desk.asked) == number


async def charged(desk: Desk) -> list[int]:
    return sorted([(await desk.store.read(run_id)).state.charged_revivals for run_id in desk.store.runs])


async def test_many_runs_come_back_a_few_a_second(tmp_path: Path) -> None:
    """One at once, then one in each twentieth of a second, whatever room there is; none is charged while it waits."""
    desk = Desk(tmp_path, [SLOW])
    await interrupted(desk, 30)
    async with desk.serving():
        await begun(desk, 1)
        for number in range(2, 12):
            desk.clock.advance(0.05)
            await begun(desk, number)
    assert await charged(desk) == [0] * 19 + [1] * 11


async def test_the_run_that_was_started_first_comes_back_first(tmp_path: Path) -> None:
    """Wherever it lies in the directory: what was under way must not wait behind all that stood in line."""
    desk = Desk(tmp_path, [SLOW])
    async with desk.serving():
        for number in range(1, 5):
            await desk.start()
            desk.clock.advance(1)
            await begun(desk, number)
    started = list(desk.store.runs)
    for mixed in ([2, 0, 3, 1], [3, 2, 1, 0]):
        desk.store.runs = {started[place]: desk.store.runs[started[place]] for place in mixed}
        desk.asked.clear()
        before = [len(await desk.store.records(run_id, after=0, limit=100)) for run_id in started]
        async with desk.serving() as supervisor:
            supervisor.configure(max_active_runs=1, default_agent="asking")
            await begun(desk, 1)
        after = [len(await desk.store.records(run_id, after=0, limit=100)) for run_id in started]
        assert [now > then for now, then in zip(after, before, strict=True)] == [True, False, False, False]


async def test_a_run_that_stands_in_line_is_listed_by_when_it_was_started(tmp_path: Path) -> None:
    desk = Desk(tmp_path, [SLOW])
    async with desk.serving() as supervisor:
        started = []
        for _ in range(2):
            started.append(await desk.start())
            listed = await supervisor.list_runs()
            assert [run["run_id"] for run in listed] == started[::-1]
            assert listed[0]["created_at"] == stamp(desk.clock.now())
            desk.clock.advance(1)


async def test_suspects_come_back_first_and_alone_and_are_waited_for_a_minute(tmp_path: Path) -> None:
    """Two deaths without progress make suspects; what never answers does not keep others back for ever."""
    desk = Desk(tmp_path, [SLOW])
    await interrupted(desk, 2)
    for _ in range(2):
        async with desk.serving():
            await begun(desk, 1)
            desk.clock.advance(0.05)
            await begun(desk, 2)
        desk.asked.clear()
    assert await charged(desk) == [2, 2]
    async with desk.serving():
        await begun(desk, 1)
        await desk.start()
        for seconds, number in ((59.9, 1), (0.2, 2), (59.0, 2), (2.0, 3)):
            desk.clock.advance(seconds)
            await begun(desk, number)
    assert await charged(desk) == [0, 3, 3]
    kinds = [fact["type"] for fact in desk.store.noted[desk.store.noted.index(newest_start(desk)) :]]
    named = ["RunEntering", "RunEntered"]
    assert kinds == ["DaemonStarted", "FoldingBegun", "FoldingEnded", *named, *named]


def newest_start(desk: Desk) -> Json:
    return [fact for fact in desk.store.noted if fact["type"] == "DaemonStarted"][-1]


async def test_a_suspect_that_progresses_lets_the_others_in_at_once(tmp_path: Path) -> None:
    desk = Desk(tmp_path, [{"text": "Done.", "delay_s": 10}])
    await interrupted(desk)
    for _ in range(2):
        async with desk.serving():
            await begun(desk, 1)
        desk.asked.clear()
    async with desk.serving():
        await begun(desk, 1)
        await desk.start()
        await begun(desk, 1)
        desk.clock.advance(10)
        await begun(desk, 2)


async def test_who_is_named_when_the_daemon_dies_is_left_alone_and_can_be_brought_back(tmp_path: Path) -> None:
    """Brought back, it is named again when it is entered: should it be the one after all, it is known at once."""
    desk = Desk(tmp_path, [SLOW])
    await interrupted(desk)
    for _ in range(3):
        async with desk.serving():
            await begun(desk, 1)
        desk.asked.clear()
    async with desk.serving() as supervisor:
        shown = await desk.until(status="quarantined")
        assert "being entered" in shown["error"]
        with pytest.raises(Conflict, match="onward revive"):
            await supervisor.cancel(desk.run_id, by="me")
        await settled()
        assert desk.asked == []
        with pytest.raises(Conflict, match="revival-cap"):
            await supervisor.revive(desk.run_id, by="me", max_revivals=1)
        await desk.until(status="quarantined")
        revived = await supervisor.revive(desk.run_id, by="me")
        assert (revived["revival"]["ok"], revived["revival"]["reason"]) == (True, "quarantined")
        await begun(desk, 1)
        facts = [fact["type"] for fact in desk.store.noted[-7:]]
        assert facts == ["DaemonStarted", *["RunEntering", "RunEntered"] * 2, "Released", "RunEntering"]
    async with desk.serving():
        await desk.until(status="quarantined")


@pytest.mark.parametrize("on_restart", ["stop", "ask"])
async def test_a_cancel_of_a_run_at_rest_is_carried_on_after_a_crash(tmp_path: Path, on_restart: str) -> None:
    """It was acknowledged, and the daemon died before the run was over: nobody has to ask again."""
    desk = Desk(tmp_path, [SLOW])
    await interrupted(desk, on_restart=on_restart)
    async with desk.serving() as supervisor:
        await desk.until(**({"status": "paused"} if on_restart == "stop" else {"waiting_on": "human"}))
        await settled()
        await supervisor.cancel(desk.run_id, by="me")
    assert await desk.records("RunEnded") == []
    async with desk.serving():
        assert (await desk.until(status="cancelled"))["error"] == "cancelled by me"
    assert desk.asked == []


async def test_a_run_that_stops_at_interruptions_is_paused_and_goes_on_when_it_is_resumed(tmp_path: Path) -> None:
    desk = Desk(tmp_path, [SLOW])
    await interrupted(desk, on_restart="stop")
    async with desk.serving() as supervisor:
        shown = await desk.until(status="paused")
        assert "on_restart is stop" in shown["error"]
    async with desk.serving() as supervisor:
        await settled()
        assert desk.asked == []
        await supervisor.resume(desk.run_id, by="me")
        await eventually(lambda: len(desk.asked) == 1)
        assert desk.asked[0].text.count("[background event]") == 1
    assert len(await desk.records("RunRevived")) == 1


async def test_a_parked_run_waits_with_one_timer_however_often_it_is_resumed(tmp_path: Path) -> None:
    desk = Desk(tmp_path, [SLOW])
    await interrupted(desk)
    desk.workspace.rmdir()
    async with desk.serving() as supervisor:
        await desk.until(status="parked", needs="workspace")
        await settled()
        waiting = desk.clock.sleepers
        for parks in range(2, 5):
            await supervisor.resume(desk.run_id, by="me")
            await settled()
            assert len(await desk.records("RunParked")) == parks
            assert desk.clock.sleepers == waiting
        desk.workspace.mkdir()
        desk.clock.advance(3600)
        await eventually(lambda: len(desk.asked) == 1)


@pytest.mark.parametrize("decision", ["resume", "stop"])
async def test_a_run_that_asks_at_interruptions_asks_once_for_each(tmp_path: Path, decision: str) -> None:
    """Before any request; another daemon that dies meanwhile interrupts nothing and adds no question."""
    desk = Desk(tmp_path, [SLOW])
    await interrupted(desk, on_restart="ask")
    for _ in range(3):
        async with desk.serving():
            question = await desk.until_asked()
            assert question["kind"] == "restart"
    async with desk.serving():
        await desk.until_asked()
        assert desk.asked == []
        await desk.answer(decision=decision)
        if decision == "stop":
            await desk.until(status="paused")
            assert desk.asked == []
            return
        await eventually(lambda: len(desk.asked) == 1)
    async with desk.serving():
        assert (await desk.until_asked("q2"))["kind"] == "restart"
    assert len(await desk.records("RunRevived")) == 2
    assert len(desk.asked) == 1
