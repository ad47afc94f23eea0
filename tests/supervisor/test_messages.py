"""Messages of clients among those that a run adds by itself: neither ever takes the other's id."""

from pathlib import Path

import pytest

from onward.core.ids import check_message_id
from onward.errors import BadRequest
from tests.supervisor.desk import Desk
from tests.support import eventually

CHOOSES = """
tools = ["read_file"]
[[stages]]
name = "plan"
prompt = "Plan."
checkpoint = "approve"
next = ["build", "skip"]
[[stages]]
name = "build"
prompt = "Build."
[[stages]]
name = "skip"
"""
TURNS = [
    {"text": "A plan."},
    {"calls": [{"name": "transition", "arguments": {"stage": "build", "reason": "it fits"}}]},
    {"calls": [{"name": "transition", "arguments": {"stage": "build", "reason": "it fits"}}]},
    {"text": "waited", "delay_s": 3600},
]


async def test_no_message_of_a_client_stands_in_the_way_of_one_that_the_run_adds(tmp_path: Path) -> None:
    """A rejection is carried out, and stages begin; every id that the run uses is refused to clients."""
    desk = Desk(tmp_path, TURNS, CHOOSES)
    async with desk.serving() as supervisor:
        await desk.start()
        await desk.until_asked()
        for taken in ("answer-q1", "stage-build-1", "choose-plan-2", "revival-1"):
            with pytest.raises(BadRequest, match="Onward's own"):
                await supervisor.send(desk.run_id, "mine", by="anna", message_id=taken)
        await desk.answer(decision="reject", reason="too short")
        await desk.until_asked("q2")
        await desk.answer("q2", decision="approve")
        await desk.until(stage="build")
        await eventually(lambda: len(desk.asked) == len(TURNS))
        await supervisor.send(desk.run_id, "mine", by="anna", message_id="answered-by-me")
    async with desk.serving():
        await eventually(lambda: len(desk.asked) > len(TURNS))

    said = {record["message_id"]: record["by"] for record in await desk.records("MessageAdded")}
    assert said.pop("answered-by-me") == "anna"
    assert {name.split("-")[0] for name in said} == {"answer", "choose", "revival", "stage"}
    for own in said:
        with pytest.raises(BadRequest):
            check_message_id(own)
