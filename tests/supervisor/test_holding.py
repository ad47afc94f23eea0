"""Holding runs back while a daemon lives, and what of a hold and of a release is known to the next one."""

from pathlib import Path

from onward.core.records import Json
from tests.supervisor.desk import Desk
from tests.support import eventually

SLOW: Json = {"text": "waited", "delay_s": 3600}


async def test_a_run_that_waits_for_a_slot_is_held_too(tmp_path: Path) -> None:
    """The hold was acknowledged before the slot came free; the slot is there for the next one."""
    desk = Desk(tmp_path, [SLOW])
    async with desk.serving() as supervisor:
        supervisor.configure(max_active_runs=1, default_agent="asking")
        first = await desk.start()
        await eventually(lambda: desk.asked)
        second = await desk.start()
        await eventually(lambda: supervisor._slots._waiting)
        await supervisor.hold(by="anna", reason="an upgrade")
        await supervisor.pause(first, by="anna")
        assert (await desk.until(waiting_on="release"))["error"] == "an upgrade"
        assert [record["type"] for record in await desk.records()] == ["RunStarted"]
        await supervisor.release(by="anna")
        await eventually(lambda: len(desk.asked) == 2)
        assert supervisor._entries[second].loaded is not None
