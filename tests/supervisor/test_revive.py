"""A human's revive through the daemon: one durable record, then the run goes on by itself; whatever held it."""

from pathlib import Path
from typing import Any

import pytest

from onward.core.records import Json, RunQuarantined
from onward.core.vocabulary import Needs
from onward.errors import Conflict
from tests.supervisor.desk import Desk
from tests.support import eventually

DONE: Json = {"text": "Done."}
FAIL: Json = {"calls": [{"name": "finish", "arguments": {"result": "no", "status": "failed"}}]}


async def revive(desk: Desk, **members: Any) -> Json:
    told: Json = await desk.supervisor.revive(desk.run_id, by="anna", **members)
    return told


async def test_a_failed_run_goes_on_where_it_failed(tmp_path: Path) -> None:
    """The record says by whom; its counts begin anew, and nobody tells the model that it was interrupted."""
    desk = Desk(tmp_path, [FAIL, DONE])
    async with desk.serving():
        await desk.start()
        await desk.until(status="failed")
        told = await revive(desk)
        assert told["revival"] == {"ok": True, "run_id": desk.run_id, "reason": "ended", "detail": "failed: finish"}
        await desk.until(status="completed")
        with pytest.raises(Conflict, match="finished"):
            await revive(desk)
    (record,) = await desk.records("RunRevived")
    assert (record["cause"], record["charged"], record["by"]) == ("manual", False, "anna")
    assert not [said for said in await desk.records("MessageAdded") if said["source"] == "revival"]


async def test_a_quarantined_run_is_told_and_goes_on(tmp_path: Path) -> None:
    """It was put aside at a crash: the revive by hand is its revival, told once."""
    desk = Desk(tmp_path, [{"text": "waited", "delay_s": 3600}], "[limits]\nmax_revivals = 0")
    async with desk.serving():
        await desk.start()
        await eventually(lambda: desk.asked)
    (tmp_path / "script").write_text('{"turns": [{"text": "Done."}]}')
    async with desk.serving():
        shown = await desk.until(status="quarantined")
        assert "revival-cap" in shown["error"]
        with pytest.raises(Conflict, match="revival-cap"):
            await revive(desk, max_revivals=0)
        assert (await revive(desk))["revival"]["reason"] == "quarantined"
        await desk.until(status="completed")
    assert [record["cause"] for record in await desk.records("RunRevived")] == ["manual"]
    assert len([said for said in await desk.records("MessageAdded") if said["source"] == "revival"]) == 1


async def test_a_run_at_work_stays_as_it_is(tmp_path: Path) -> None:
    desk = Desk(tmp_path, [{"text": "waited", "delay_s": 3600}])
    async with desk.serving():
        await desk.start()
        await eventually(lambda: desk.asked)
        assert (await revive(desk))["revival"]["reason"] == "live"
    assert await desk.records("RunRevived") == []


async def test_a_paused_or_parked_run_is_revived(tmp_path: Path) -> None:
    """As resuming does, and with counts that begin anew."""
    desk = Desk(tmp_path, [{"text": "waited", "delay_s": 3600}])
    async with desk.serving() as supervisor:
        await desk.start()
        await eventually(lambda: desk.asked)
        await supervisor.pause(desk.run_id, by="anna")
        await desk.until(status="paused")
        (tmp_path / "script").write_text('{"turns": [{"text": "Done."}]}')
        assert (await revive(desk))["revival"]["reason"] == "paused"
        await desk.until(status="completed")


async def test_a_run_that_waits_for_a_human_is_answered_not_revived(tmp_path: Path) -> None:
    ask = {"calls": [{"name": "ask_user", "arguments": {"question": "x?"}}]}
    desk = Desk(tmp_path, [ask, DONE], 'tools = ["ask_user"]')
    async with desk.serving():
        await desk.start()
        await desk.until_asked("q1")
    async with desk.serving():
        await desk.until_asked("q1")
        with pytest.raises(Conflict, match="for an answer to q1"):
            await revive(desk)
        await desk.answer("q1", value="because")
        await desk.until(status="completed")


async def test_a_damaged_run_is_revived_by_hand_as_by_its_question(tmp_path: Path) -> None:
    """What the journal does not know is set aside, the question is closed, and the run goes on."""
    desk = Desk(tmp_path, [{"text": "waited", "delay_s": 3600}])
    async with desk.serving():
        await desk.start()
        await eventually(lambda: desk.asked)
    await desk.store.make_call_dir(desk.run_id, "t7c1")
    (tmp_path / "script").write_text('{"turns": [{"text": "Done."}]}')
    async with desk.serving():
        shown = await desk.until(status="parked")
        assert shown["needs"] == Needs.DECISION
        assert (await revive(desk))["revival"]["reason"] == "damaged"
        await desk.until(status="completed")
    assert [record["reason"] for record in await desk.records("InteractionClosed")] == [
        "the run went on before it was answered"
    ]


async def test_a_bug_that_quarantined_a_run_is_mended_by_a_revive(tmp_path: Path) -> None:
    """Also of a run that had only its end to write: being put aside goes before being finished."""
    desk = Desk(tmp_path, [DONE])
    async with desk.serving():
        await desk.start()
        await desk.until(status="completed")
    run = desk.store.runs[desk.run_id]
    del run.lines[-1]
    run.index = None
    log = await desk.store.open(desk.run_id)
    await log.append(RunQuarantined(by="daemon", reason="an error in Onward: x"))
    await log.flush()
    await log.close()
    async with desk.serving():
        await desk.until(status="quarantined")
        assert (await revive(desk))["revival"]["ok"]
        await desk.until(status="completed")


async def test_a_run_with_which_the_daemon_died_is_read_again_when_a_human_revives_it(tmp_path: Path) -> None:
    """What set it aside stands in the daemon's facts; the revive ends that for good, and the run goes on."""
    desk = Desk(tmp_path, [{"text": "waited", "delay_s": 3600}])
    async with desk.serving():
        await desk.start()
        await eventually(lambda: desk.asked)
    await desk.store.append_fact(type="RunSuspended", run_id=desk.run_id, reason="the daemon died")
    (tmp_path / "script").write_text('{"turns": [{"text": "Done."}]}')
    async with desk.serving():
        await desk.until(status="quarantined", error="the daemon died")
        told = await revive(desk)
        assert (told["revival"]["reason"], told["revival"]["detail"]) == ("quarantined", "the daemon died")
        await desk.until(status="completed")
    assert [record["cause"] for record in await desk.records("RunRevived")] == ["manual"]
    async with desk.serving():
        await desk.until(status="completed")
