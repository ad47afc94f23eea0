"""A workspace whose file system is dead: whoever asks it never gets an answer, and holds up nobody."""

import threading
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from anyio import lowlevel

from onward.errors import BadRequest
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
    monkeypatch.setattr(workspaces, "ANSWER_S", 0.3)
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


async def answer(places: Workspaces, mount: DeadMount) -> Seen:
    with anyio.fail_after(30):
        while (seen := await places.look_at(str(mount.path))) is None:
            await lowlevel.checkpoint()
    return seen
