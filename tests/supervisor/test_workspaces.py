"""A workspace whose file system is dead: whoever asks it never gets an answer, and holds up nobody."""

import threading
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from anyio import lowlevel

from onward.core.records import Json
from onward.errors import BadRequest
from onward.native import running
from onward.supervisor import workspaces
from onward.supervisor.workspaces import Seen, Workspaces
from tests.dead_mount import DeadMount, needs_fuse
from tests.supervisor.desk import Desk
from tests.support import eventually

pytestmark = needs_fuse
DONE = {"text": "Done."}
SLOW = {"text": "Done.", "delay_s": 1000}


@pytest.fixture
def mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DeadMount]:
    monkeypatch.setattr(workspaces, "ANSWER_S", 2.0)  # a loaded machine is no dead one
    path = tmp_path / "mount"
    path.mkdir()
    mount = DeadMount(path)
    yield mount
    mount.close()


async def test_a_dead_mount_is_asked_by_one_thread_until_it_answers(mount: DeadMount) -> None:
    seen = Seen(path=str(mount.path), is_dir=True, may_write=True, is_mount=True)
    places, before = Workspaces(), threading.active_count()
    assert await places.look_at(str(mount.path)) == seen
    mount.die()
    for _ in range(20):
        assert await places.look_at(str(mount.path)) is None
    assert threading.active_count() <= before + 1
    mount.live()
    assert await answer(places, mount) == seen


async def test_a_run_on_a_dead_mount_parks_and_goes_on_when_it_answers(mount: DeadMount, tmp_path: Path) -> None:
    """Runs elsewhere work meanwhile, and the daemon can be stopped."""
    desk = Desk(tmp_path, [SLOW])
    usual, desk.workspace = desk.workspace, mount.path
    async with desk.serving():
        on_mount = await desk.start()
        await eventually(lambda: len(desk.asked) == 1)
    mount.die()
    async with desk.serving() as supervisor:
        assert "does not answer" in (await desk.until(status="parked", needs="workspace"))["error"]
        with pytest.raises(BadRequest, match="does not answer"):
            await desk.start()
        desk.workspace = usual
        await desk.start()
        await eventually(lambda: len(desk.asked) == 2)
        mount.live()
        await answer(supervisor._workspaces, mount)
        desk.clock.advance(3600)
        desk.run_id = on_mount
        await desk.until(status="active", needs=None)
        await eventually(lambda: len(desk.asked) == 3)
        with anyio.fail_after(30):
            await supervisor.stop(leave_running=True)


def calling(name: str, **arguments: str) -> list[Json]:
    return [{"delay_s": 10, "calls": [{"name": name, "arguments": arguments}]}, DONE]


READ = calling("read_file", path="x")
WRITE = calling("write_file", path="x", content="y")


async def hung(desk: Desk, mount: DeadMount) -> None:
    """Bring the run to where its call waits for the dead mount."""
    desk.workspace = mount.path
    await desk.start()
    await eventually(lambda: len(desk.asked) == 1)
    mount.die()
    desk.clock.advance(10)
    entry = desk.supervisor._entries[desk.run_id]
    await eventually(lambda: entry.loaded and any(call.started for call in entry.loaded.live.state.open_calls))


@pytest.mark.parametrize("turns", [READ, WRITE])
async def test_a_call_on_a_dead_mount_ends_at_its_deadline(mount: DeadMount, tmp_path: Path, turns: list[Json]) -> None:
    desk = Desk(tmp_path, turns, agent="[limits]\ncall_deadline_s = 0.2")
    async with desk.serving():
        await hung(desk, mount)
        await desk.until(status="completed")
    (done,) = await desk.records("ToolCallDone")
    assert done["outcome"] == "timeout"
    assert "did not end within 0.2 s, and may still go on" in done["result"]


@pytest.mark.parametrize("turns", [READ, WRITE])
async def test_a_cancel_does_not_wait_for_a_dead_mount(
    mount: DeadMount, tmp_path: Path, turns: list[Json], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "DRAIN_GRACE_S", 0.2)
    desk = Desk(tmp_path, turns)
    async with desk.serving() as supervisor:
        await hung(desk, mount)
        await supervisor.cancel(desk.run_id, by="anna")
        await desk.until(status="cancelled")
    (done,) = await desk.records("ToolCallDone")
    assert done["outcome"] == "cancelled"
    assert "Whether it took effect is unknown" in done["result"]


@pytest.mark.parametrize("turns", [READ, WRITE])
async def test_a_stop_does_not_wait_for_a_dead_mount(
    mount: DeadMount, tmp_path: Path, turns: list[Json], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next daemon says that what became of the call is unknown."""
    monkeypatch.setattr(running, "DRAIN_GRACE_S", 0.2)
    desk = Desk(tmp_path, turns)
    async with desk.serving() as supervisor:
        await hung(desk, mount)
        await supervisor.stop(leave_running=True)
    assert await desk.records("ToolCallDone") == []
    mount.live()
    async with desk.serving():
        await desk.until(status="completed")
    (done,) = await desk.records("ToolCallDone")
    assert done["outcome"] == "interrupted"


async def answer(places: Workspaces, mount: DeadMount) -> Seen:
    with anyio.fail_after(30):
        while (seen := await places.look_at(str(mount.path))) is None:
            await lowlevel.checkpoint()
    return seen
