"""Runs that a human holds back, releases or revives: what is done now, and what the next daemon knows of it."""

from pathlib import Path
from typing import Any

import pytest
from anyio import lowlevel

from onward.core.daemon_facts import CRASH_LOOP
from onward.core.records import Json
from tests.supervisor.desk import Desk, settled
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


async def interrupted(desk: Desk) -> str:
    """A run in mid-request when its daemon died, which was suspended for that."""
    async with desk.serving():
        run_id = await desk.start()
        await eventually(lambda: desk.asked)
    desk.asked.clear()
    await desk.store.append_fact(type="RunSuspended", run_id=run_id, reason="it kills")
    return run_id


async def named(desk: Desk) -> list[Json]:
    """Wait until the run is at work; returns what was noted of it since it was suspended."""
    await eventually(lambda: desk.asked)
    facts = [fact for fact in await desk.store.facts() if fact.get("run_id") == desk.run_id]
    return facts[1 + max(at for at, fact in enumerate(facts) if fact["type"] == "RunSuspended") :]


async def test_a_revived_run_is_named_from_its_entering_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ends its quarantine comes before: whoever dies with it now knows which run it was."""
    desk = Desk(tmp_path, [SLOW])
    run_id = await interrupted(desk)
    append = desk.store.append_fact

    async def slowly(**fact: Any) -> None:
        for _ in range(50 if fact["type"] in ("RunEntered", "Released") else 0):
            await lowlevel.checkpoint()
        await append(**fact)

    monkeypatch.setattr(desk.store, "append_fact", slowly)
    async with desk.serving() as supervisor:
        told = await supervisor.revive(run_id, by="anna")
        assert told["revival"] == {"ok": True, "run_id": run_id, "reason": "quarantined", "detail": "it kills"}
        noted = [(fact["type"], fact.get("doing", fact.get("what"))) for fact in await named(desk)]
    assert noted == [
        ("RunEntering", "read"), ("RunEntered", None), ("Released", "quarantine"), ("RunEntering", "entered"),
    ]  # fmt: skip
    async with desk.serving():
        await desk.until(status="quarantined")


async def test_a_run_that_was_revived_without_a_daemon_is_named_by_the_next(tmp_path: Path) -> None:
    """Before its journal is read, also where many others are looked at first."""
    desk = Desk(tmp_path, [SLOW])
    run_id = await interrupted(desk)
    await desk.store.append_fact(type="Released", what="quarantine", run_id=run_id, by="anna")
    async with desk.serving():
        assert [(fact["type"], fact.get("doing")) for fact in await named(desk)][1:] == [("RunEntering", "entered")]
    async with desk.serving():
        await desk.until(status="quarantined")


async def test_a_run_that_was_released_by_name_goes_on_after_a_crash(tmp_path: Path) -> None:
    """Until runs are held anew; the others stay held."""
    desk = Desk(tmp_path, [SLOW])
    async with desk.serving() as supervisor:
        await supervisor.hold(by="anna", reason="an upgrade")
        other, mine = await desk.start(), await desk.start()
        await desk.until(waiting_on="release")
        await supervisor.release(mine, by="anna")
        await eventually(lambda: desk.asked)
    desk.asked.clear()
    async with desk.serving() as supervisor:
        await eventually(lambda: desk.asked)
        assert supervisor._entries[mine].loaded is not None
        assert (await supervisor.get_run(other))["waiting_on"] == "release"
        await supervisor.hold(by="anna", reason="another")
    async with desk.serving() as supervisor:
        assert (await desk.until(waiting_on="release"))["error"] == "another"


async def test_a_release_by_name_does_not_outlast_its_hold(tmp_path: Path) -> None:
    desk = Desk(tmp_path, [SLOW])
    async with desk.serving() as supervisor:
        await supervisor.hold(by="anna", reason="an upgrade")
        run_id = await desk.start()
        await desk.until(waiting_on="release")
        await supervisor.release(run_id, by="anna")
        await eventually(lambda: desk.asked)
    desk.store.held = None  # somebody removes the file
    async with desk.serving():
        await eventually(lambda: len(desk.asked) == 2)
    desk.store.held = "and puts it there again"
    async with desk.serving():
        await desk.until(waiting_on="release")


async def test_a_run_let_go_in_a_crash_loop_is_named_as_it_may_be_the_cause(tmp_path: Path) -> None:
    """Nothing was found out about it, as nothing was read; should it be the one, the next daemon leaves it alone."""
    desk = Desk(tmp_path, [SLOW])
    async with desk.serving():
        run_id = await desk.start()
        await eventually(lambda: desk.asked)
    desk.asked.clear()
    for _ in range(CRASH_LOOP):
        await desk.store.append_fact(type="DaemonStarted", boot_id=desk.processes.boot_id)
    async with desk.serving() as supervisor:
        assert list((await supervisor.daemon())["hold"]["reasons"]) == ["crash-loop"]
        await desk.until(waiting_on="release")
        await supervisor.release(run_id, by="anna")
        await eventually(lambda: desk.asked)
    async with desk.serving():
        await desk.until(status="quarantined")


async def test_a_run_that_waits_for_its_turn_after_a_crash_is_held_too(tmp_path: Path) -> None:
    """Runs come back a few a second; those that were let in already and wait for that are not entered after a hold."""
    desk = Desk(tmp_path, [SLOW])
    async with desk.serving():
        for _ in range(3):
            await desk.start()
        await eventually(lambda: len(desk.asked) == 3)
        await settled()
    desk.asked.clear()
    async with desk.serving() as supervisor:
        await eventually(lambda: desk.asked)
        await settled()
        await supervisor.hold(by="anna", reason="an upgrade")
        desk.clock.advance(3600)
        await settled()
        assert len(desk.asked) == 1
        held = [entry.run_id for entry in supervisor._entries.values() if entry.shown()["waiting_on"] == "release"]
        assert len(held) == 2
        assert [(await desk.store.read(run_id)).state.claims for run_id in held] == [1, 1]
        await supervisor.release(by="anna")
        await settled()
        desk.clock.advance(3600)
        await settled()
        assert len(desk.asked) == 3
