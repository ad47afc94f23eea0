"""What a run is after a restart: in its own stage, with its own question, and with its task."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from onward.errors import Conflict
from tests.supervisor.desk import Desk

Json = dict[str, Any]

STAGED = """
tools = ["shell", "read_file", "write_file", "ask_user"]
[permissions]
write_file = "deny"
[[stages]]
name = "plan"
prompt = "Plan it."
tools = ["read_file"]
checkpoint = ["approve", "sign"]
next = ["build"]
[[stages]]
name = "build"
prompt = "Build it."
tools = ["write_file", "shell"]
model = "scripted/strong"
[stages.permissions]
shell = "ask"
"""
PLAN: Json = {"text": "The plan."}
DONE: Json = {"text": "Done."}


def calls(name: str, **arguments: Any) -> Json:
    return {"calls": [{"name": name, "arguments": arguments}]}


async def approved(desk: Desk) -> None:
    """Bring a run into its second stage."""
    await desk.start()
    for which in ("q1", "q2"):
        await desk.until_asked(which)
        await desk.answer(which, decision="approve")


async def test_a_stage_entered_after_a_restart_has_its_own_tools_permissions_and_model(tmp_path: Path) -> None:
    """Approved just before the end of a daemon: the next one enters the stage, and it is not the first one's."""
    write = calls("write_file", path="x", content="x")
    desk = Desk(tmp_path, [PLAN, write, calls("shell", command="ls"), calls("read_file", path="x"), DONE], STAGED)
    async with desk.serving():
        await approved(desk)
    async with desk.serving():
        await desk.until_asked("q3")
    async with desk.serving():
        await desk.until_asked("q3")
        await desk.answer("q3", decision="approve")
        await desk.until(status="completed")
    assert [(asked.model, asked.tools) for asked in desk.asked[:1]] == [("scripted/usual", ["read_file", "transition"])]
    later = desk.asked[1:]
    assert {asked.model for asked in later} == {"scripted/strong"}
    assert {tuple(asked.tools) for asked in later} == {("shell", "write_file")}
    wrote, ran, read = await desk.records("ToolCallDone")
    assert (wrote["outcome"], ran["outcome"], read["outcome"]) == ("ok", "ok", "error")
    assert "no tool 'read_file'" in read["result"]


@pytest.mark.parametrize("answer", [{"decision": "edit", "text": "My plan."}, {"decision": "approve"}])
async def test_editing_or_approving_the_first_of_several_points_after_a_restart_goes_on(
    tmp_path: Path, answer: Json
) -> None:
    """The second point is asked about next, and what was edited reaches the next stage; no model is asked before."""
    desk = Desk(tmp_path, [PLAN, DONE], STAGED)
    async with desk.serving():
        await desk.start()
        before = await desk.until_asked("q1")
    async with desk.serving():
        assert await desk.until_asked("q1") == before
        await desk.answer("q1", **answer)
        second = await desk.until_asked("q2")
    async with desk.serving():
        assert await desk.until_asked("q2") == second
        assert len(desk.asked) == 1
        await desk.answer("q2", decision="approve")
        await desk.until(status="completed")
    edited = "text" in answer
    assert second["ask"]["result"] == ("My plan." if edited else "The plan.")
    assert ("My plan." in desk.asked[1].text) == edited
    assert [record["stage"] for record in await desk.records("StageEntered")] == ["plan", "build"]


@pytest.mark.parametrize("agent", ["", STAGED], ids=["no stages", "stages"])
async def test_a_run_that_holds_only_its_start_has_its_task_after_a_restart(tmp_path: Path, agent: str) -> None:
    """Its first request says what to do, and in which stage."""
    desk = Desk(tmp_path, [DONE], agent)
    async with desk.serving():
        await desk.start()
    run = desk.store.runs[desk.run_id]
    del run.lines[1:]
    run.durable = min(run.durable, 1)
    desk.asked.clear()
    async with desk.serving():
        await desk.until(turn=1)
    assert "do it" in desk.asked[0].text
    assert ("Plan it." in desk.asked[0].text) == bool(agent)


async def test_a_list_of_questions_from_another_moment_neither_opens_an_old_one_nor_drops_a_live_one(
    tmp_path: Path,
) -> None:
    """The index and its list of the first question lie beside a journal that is at the second."""
    desk = Desk(tmp_path, [PLAN, DONE], STAGED)
    async with desk.serving():
        await desk.start()
        await desk.until_asked("q1")
        run = desk.store.runs[desk.run_id]
        stale = run.index, run.questions
        await desk.answer("q1", decision="approve")
        await desk.until_asked("q2")
    run.index, run.questions = stale
    async with desk.serving():
        assert (await desk.until_asked("q2"))["binds_to"]["point"] == 1
        with pytest.raises(Conflict, match="q1 was answered already, by anna"):
            await desk.answer("q1", decision="reject")
    run.index = None
    async with desk.serving():
        await desk.until_asked("q2")
    assert len(desk.asked) == 1


async def test_a_message_to_a_run_that_waits_does_not_keep_it_busy(tmp_path: Path) -> None:
    """It waits as before: no attempt after the other is written down."""
    desk = Desk(tmp_path, [calls("ask_user", question="x?"), DONE], STAGED.split("[[stages]]", maxsplit=1)[0])
    async with desk.serving() as supervisor:
        await desk.start()
        await desk.until_asked("q1")
        await supervisor.send(desk.run_id, "hurry", by="me")
        await desk.until_asked("q1")
        for _ in range(5):
            await supervisor.get_run(desk.run_id)
        await desk.until_asked("q1")
        claims = len(await desk.records("RunClaimed"))
        assert claims <= 2
        await desk.answer("q1", value="because")
        await desk.until(status="completed")
    assert "hurry" in desk.asked[1].text


async def test_always_is_for_what_was_approved_and_is_kept(tmp_path: Path) -> None:
    """An edited approval grants the edited command, not the one that was asked about."""
    asks = 'tools = ["shell"]\n[permissions]\nshell = "ask"'
    push, pull = calls("shell", command="git push"), calls("shell", command="git pull now")
    desk = Desk(tmp_path, [push, pull, push, DONE], asks)
    async with desk.serving():
        await desk.start()
        await desk.until_asked("q1")
        await desk.answer("q1", decision="approve", always=True, arguments={"command": "git pull"})
        await desk.until_asked("q2")
    async with desk.serving():
        question = await desk.until_asked("q2")
        assert question["ask"]["arguments"] == {"command": "git push"}
        await desk.answer("q2", decision="deny")
        await desk.until(status="completed")
    assert [spec.argv[-1] for spec in desk.processes.launched] == ["git pull", "git pull now"]
    (settings,) = await desk.records("SettingsChanged")
    assert settings["grants"] == [{"tool": "shell", "prefix": "git pull"}]
    assert orjson.dumps(settings["grants"]) in orjson.dumps((await desk.store.read(desk.run_id)).state.grants)
