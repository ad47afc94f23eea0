"""A stop that comes while a daemon starts."""

from pathlib import Path

import anyio
import pytest

from onward.testing.fake_processes import FakeProcesses
from tests.supervisor.desk import Desk


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
