"""The native loop when it cannot go on: a drain, and a full disk. Nothing is lost and nothing is done twice."""

import errno
from pathlib import Path
from typing import Any

import anyio

from onward.core.index import questions_of
from onward.core.records import RunPaused
from onward.core.status import Status
from onward.ports.process import LaunchSpec
from onward.ports.store import Decide
from onward.testing.fake_processes import FakeCommand
from tests.native.loops import Loop, asks, call, shell, waiting

Json = dict[str, Any]


def results(records: list[Json]) -> list[tuple[str, str]]:
    return [(record["call_id"], record["outcome"]) for record in records if record["type"] == "ToolCallDone"]


async def test_a_drain_drops_the_request_that_is_out_and_the_next_daemon_makes_it_again(tmp_path: Path) -> None:
    loop = Loop(tmp_path, [{"text": "done", "delay_s": 5}])
    await loop.start()
    async with anyio.create_task_group() as tasks:
        run = await loop.begin(tasks)
        await loop.until(lambda: loop.clock.sleepers == 1)
        run.drain(leave_running=True)
    drained = (await loop.records())[-1]
    assert (drained["type"], drained["in_flight"], loop.live.state.turns) == ("DaemonDraining", [], 0)
    await loop.live.close()
    async with anyio.create_task_group() as tasks:
        await loop.begin(tasks)
        await loop.until(lambda: loop.clock.sleepers == 1)
        loop.clock.advance(5)
    assert (await loop.types())[-1] == "RunEnded"


async def test_a_drain_leaves_commands_to_the_next_daemon_which_gets_their_real_results(tmp_path: Path) -> None:
    loop = Loop(tmp_path, [asks(shell("long"), shell("next")), {"text": "done"}])
    loop.processes.commands = waiting
    await loop.start()
    async with anyio.create_task_group() as tasks:
        run = await loop.begin(tasks)
        await loop.until(lambda: len(loop.processes.launched) == 1)
        run.drain(leave_running=True)
    drained = (await loop.records())[-1]
    assert (drained["type"], drained["in_flight"]) == ("DaemonDraining", ["t1c1"])
    assert results(await loop.records()) == []
    await loop.live.close()
    async with anyio.create_task_group() as tasks:
        await loop.begin(tasks, adopt=("t1c1",))
        loop.processes.finish(loop.processes.launched[0].call_dir, duration_s=12.0)
        await loop.until(lambda: len(loop.processes.launched) == 2)
        loop.processes.finish(loop.processes.launched[1].call_dir)
    first = (await loop.records("ToolCallDone"))[0]
    assert (first["call_id"], first["outcome"], first["reason"]) == ("t1c1", "ok", "adopted")
    assert (first["settled_by"], first["duration_s"]) == ("tool", 12.0)
    assert [spec.argv[2] for spec in loop.processes.launched] == ["long", "next"]


async def test_a_drain_that_comes_before_a_command_is_adopted_leaves_it_too(tmp_path: Path) -> None:
    loop = Loop(tmp_path, [asks(shell("long"))])
    loop.processes.commands = waiting
    await loop.start()
    async with anyio.create_task_group() as tasks:
        run = await loop.begin(tasks)
        await loop.until(lambda: len(loop.processes.launched) == 1)
        run.drain(leave_running=True)
    await loop.live.close()
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            (await loop.begin(tasks, adopt=("t1c1",))).drain(leave_running=True)
    assert (await loop.types())[-2:] == ["DaemonDraining", "DaemonDraining"]
    assert results(await loop.records()) == []


async def test_a_drain_that_leaves_nothing_running_ends_commands_and_journals_what_came_of_them(tmp_path: Path) -> None:
    loop = Loop(tmp_path, [asks(shell("long"), shell("never"))])
    loop.processes.commands = waiting
    await loop.start()
    async with anyio.create_task_group() as tasks:
        run = await loop.begin(tasks)
        await loop.until(lambda: len(loop.processes.launched) == 1)
        run.drain(leave_running=False)
    records = await loop.records()
    assert results(records) == [("t1c1", "interrupted")]
    assert (records[-1]["type"], records[-1]["in_flight"]) == ("DaemonDraining", [])
    assert len(loop.processes.launched) == 1


async def test_a_drain_before_the_first_step_begins_nothing(tmp_path: Path) -> None:
    loop = Loop(tmp_path, [{"text": "never asked"}])
    await loop.start()
    async with anyio.create_task_group() as tasks:
        (await loop.begin(tasks)).drain(leave_running=True)
    assert await loop.types() == ["RunStarted", "DaemonDraining"]


async def full_and_free_again(loop: Loop) -> None:
    """Let the disk be full until the run waits for it, watch that it takes no step, then make space."""
    await loop.until(lambda: loop.live.stalled is not None and loop.clock.sleepers)
    written, launched = await loop.types(), len(loop.processes.launched)
    assert loop.live.index()["status"] == Status.PARKED
    assert loop.live.index()["needs"] == "disk"
    for _ in range(5):
        loop.clock.advance(20)
        await loop.until(lambda: loop.clock.sleepers)
    assert (await loop.types(), len(loop.processes.launched)) == (written, launched)
    loop.store.full = False
    loop.clock.advance(20)


async def test_a_full_disk_makes_the_run_wait_and_it_goes_on_by_itself_with_nothing_doubled(tmp_path: Path) -> None:
    turns = [asks(shell("one"), usage={"input_tokens": 10, "cost_usd": 0.5}), {"text": "done", "delay_s": 1}]
    loop = Loop(tmp_path, turns)
    await loop.start()
    loop.store.full = True
    async with anyio.create_task_group() as tasks:
        await loop.begin(tasks)
        await full_and_free_again(loop)
        await loop.until(lambda: loop.live.state.turns == 1 and not loop.live.state.open_calls and loop.clock.sleepers)
        loop.store.full = True
        loop.clock.advance(1)
        await full_and_free_again(loop)
    assert await loop.types() == [
        "RunStarted", "InferenceStarted", "AssistantTurn", "ToolBatch", "ToolCallStarted", "ToolCallDone",
        "InferenceStarted", "AssistantTurn", "RunEnded",
    ]  # fmt: skip
    assert loop.live.stalled is None
    assert (loop.live.state.totals.tokens_in, loop.live.state.totals.cost_usd) == (10, 0.5)
    assert len(loop.processes.launched) == 1


async def test_a_call_for_whose_evidence_there_is_no_room_is_started_when_there_is(tmp_path: Path) -> None:
    """It was handed over, and has not run: the model is not told of our disk, which it can do nothing about."""
    room = False

    def command(_spec: LaunchSpec) -> FakeCommand:
        return FakeCommand() if room else FakeCommand(error=OSError(errno.ENOSPC, "No space left on device"))

    loop = Loop(tmp_path, [asks(shell("one")), {"text": "done"}])
    loop.processes.commands = command
    await loop.start()
    async with anyio.create_task_group() as tasks:
        await loop.begin(tasks)
        await loop.until(lambda: loop.live.state.open_calls and loop.clock.sleepers)
        loop.store.full = True  # now its directory does not fit either
        loop.clock.advance(1)
        await loop.until(lambda: loop.live.stalled is not None and loop.clock.sleepers)
        assert loop.live.index()["needs"] == "disk"
        loop.store.full, room = False, True
        for _ in range(3):
            loop.clock.advance(20)
            await loop.until(lambda: loop.clock.sleepers or loop.over)
    assert results(await loop.records()) == [("t1c1", "ok")]
    assert len(loop.processes.launched) == 1


async def test_a_run_asks_nobody_before_its_question_is_durable(tmp_path: Path) -> None:
    """Until then it is listed nowhere, so nobody could be told what the run waits for."""
    loop = Loop(tmp_path, [{"text": "", "calls": [call("ask_user", question="Which?")]}])
    seen: list[tuple[Any, int]] = []
    loop.agent["tools"] = [*loop.agent["tools"], "ask_user"]

    def look() -> None:
        waits = loop.live.index()["waiting_on"]
        seen.append((waits, len(questions_of(loop.live.state, up_to=loop.live.durable_seq))))

    await loop.start()
    async with anyio.create_task_group() as tasks:
        await loop.begin(tasks)
        write = loop.live._log.write

        async def written(decide: Decide) -> int:
            seq = await write(decide)
            look()
            return seq

        loop.live._log.write = written  # type: ignore[method-assign]
    look()
    assert ("human", 0) not in seen
    assert seen[-1] == ("human", 1)


async def test_a_result_that_a_full_disk_does_not_take_is_kept_and_written_first(tmp_path: Path) -> None:
    loop = Loop(tmp_path, [asks(shell("one"), shell("two")), {"text": "done"}])
    loop.processes.commands = waiting
    await loop.start()
    async with anyio.create_task_group() as tasks:
        await loop.begin(tasks)
        await loop.until(lambda: len(loop.processes.launched) == 1)
        loop.store.full = True
        loop.processes.finish(loop.processes.launched[0].call_dir)
        await full_and_free_again(loop)
        await loop.until(lambda: len(loop.processes.launched) == 2)
        loop.processes.finish(loop.processes.launched[1].call_dir)
    assert results(await loop.records()) == [("t1c1", "ok"), ("t1c2", "ok")]


async def test_messages_that_wait_for_the_disk_are_written_in_the_order_in_which_they_came(tmp_path: Path) -> None:
    loop = Loop(tmp_path, [{"text": "done", "delay_s": 100}])
    await loop.start()
    async with anyio.create_task_group() as tasks:
        await loop.begin(tasks)
        await loop.until(lambda: loop.clock.sleepers == 1)
        loop.store.full = True
        for number in range(5):
            tasks.start_soon(loop.say, f"word {number}", f"m{number}")
            await anyio.lowlevel.checkpoint()
        await loop.until(lambda: loop.clock.sleepers == 2)
        loop.store.full = False
        loop.clock.advance(1)
        await loop.until(lambda: loop.live.state.seq == 7)
        tasks.cancel_scope.cancel()
    assert [record["message_id"] for record in await loop.records("MessageAdded")] == [f"m{n}" for n in range(5)]


async def test_what_is_said_while_the_end_is_being_written_is_heard(tmp_path: Path) -> None:
    """A long result is written beside the journal first; a message acknowledged meanwhile stands before the end."""
    loop = Loop(tmp_path, [{"text": "\x01" * 40_000}, {"text": "heard"}])
    await loop.start()
    async with anyio.create_task_group() as tasks:

        def say_once() -> None:
            if loop.live.state.turns == 1:
                loop.on_decision = lambda: None
                tasks.start_soon(loop.say, "wait", "m1")

        loop.on_decision = say_once
        await loop.begin(tasks)
    types = await loop.types()
    assert types.index("MessageAdded") < types.index("RunEnded") == len(types) - 1
    assert loop.live.state.turns == 2


async def test_what_is_decided_before_a_full_disk_has_space_is_decided_again_after_it(tmp_path: Path) -> None:
    """A pause that is acknowledged first stays: neither a call is begun behind it, nor is the run parked instead."""
    loop = Loop(tmp_path, [asks(shell("a"), delay_s=5)])
    await loop.start()
    async with anyio.create_task_group() as tasks:
        run = await loop.begin(tasks)
        await loop.until(lambda: loop.clock.sleepers == 1)
        loop.store.full = True
        tasks.start_soon(loop.live.append, RunPaused(by="me", reason="wait"))
        await loop.until(lambda: loop.live.stalled is not None)
        loop.clock.advance(5)  # the answer comes, and waits for the disk behind the pause
        await anyio.wait_all_tasks_blocked()
        loop.store.full = False
        loop.clock.advance(60)
        await loop.until(lambda: loop.live.state.status is Status.PAUSED)
        run.obey()
    assert (await loop.types())[-1] == "RunPaused"
    assert loop.processes.launched == []
