"""What is asked for while a daemon starts, or while a run comes back."""

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import from_thread

from onward.ports.process import CallTrace
from onward.testing.fake_processes import FakeCommand, FakeProcesses
from tests.supervisor.desk import Desk
from tests.support import eventually

SHELL: dict[str, Any] = {"calls": [{"name": "shell", "arguments": {"command": "long"}}]}


class StoppedMeanwhile(FakeProcesses):
    """The stop comes while leftovers are looked for: in a thread, where no cancellation is heard."""

    def __init__(self, starting: anyio.CancelScope) -> None:
        super().__init__()
        self.starting = starting

    async def end_leftovers(self, instance: str, keep: frozenset[tuple[str, str]]) -> int:
        ended = await super().end_leftovers(instance, keep)
        self.starting.cancel()
        return ended


async def test_a_stop_during_the_last_piece_of_a_start_is_noted_too(tmp_path: Path) -> None:
    """Else the next daemon takes it for a death, and counts it."""
    with anyio.CancelScope() as starting:
        desk = Desk(tmp_path, [], processes=StoppedMeanwhile(starting))
        supervisor = desk.new_supervisor()
        with supervisor._admission._queue, supervisor._admission._queued:
            await supervisor.boot()
        pytest.fail("it went on")
    assert [fact["type"] for fact in await desk.store.facts()] == ["DaemonStarted", "DaemonStopped"]


class AskedMeanwhile(FakeProcesses):
    """Something is asked for, once, while the evidence of a run's calls is looked at: it is not at work yet."""

    def __init__(self) -> None:
        super().__init__(lambda _spec: FakeCommand(waits=True))
        self.asked: Callable[[], Coroutine[Any, Any, None]] | None = None

    def fence(self, call_dir: Path) -> CallTrace:
        asked, self.asked = self.asked, None
        if asked is not None:
            from_thread.run(asked)
        return super().fence(call_dir)


async def in_flight(desk: Desk) -> Path:
    """Let a daemon die over a command; returns the directory of the call."""
    async with desk.serving():
        await desk.start()
        (launched,) = await eventually(lambda: desk.processes.launched)
    return launched.call_dir


async def test_a_stop_while_a_run_is_recovered_charges_nobody(tmp_path: Path) -> None:
    """It was revived once, for the crash before; the stop is another thing."""
    processes = AskedMeanwhile()
    desk = Desk(tmp_path, [SHELL, {"text": "Done."}], processes=processes)
    processes.finish(await in_flight(desk))
    processes.asked = lambda: desk.supervisor.stop(leave_running=True)
    supervisor = desk.new_supervisor()
    with supervisor._admission._queue, supervisor._admission._queued, anyio.fail_after(30):
        await supervisor.boot()
        await supervisor.serve()
    assert (await desk.records())[-1]["type"] == "DaemonDraining"
    async with desk.serving():
        await desk.until(status="completed")
    assert len(await desk.records("RunRevived")) == 1


async def test_a_cancel_before_a_command_is_adopted_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run is open, and nobody is at work in it who could be told."""
    desk = Desk(tmp_path, [SHELL, {"text": "Done."}], processes=FakeProcesses(lambda _spec: FakeCommand(waits=True)))
    await in_flight(desk)
    call_dirs = desk.store.call_dirs

    async def cancelled_before(run_id: str) -> list[str]:
        entry = desk.supervisor._entries[run_id]
        if entry.loaded is not None and entry.loaded.native is None and entry.loaded.live.state.cancel_by is None:
            await desk.supervisor.cancel(run_id, by="anna")
        return await call_dirs(run_id)

    monkeypatch.setattr(desk.store, "call_dirs", cancelled_before)
    async with desk.serving():
        await desk.until(status="cancelled")
    assert [done["outcome"] for done in await desk.records("ToolCallDone")] == ["cancelled"]
