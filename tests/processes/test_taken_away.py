"""A command runs as the daemon's user, so it can take away what is written of it: then nobody guesses."""

from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from onward.ports.process import EndedBy, Trace
from onward.processes import LauncherSpawner
from onward.processes.evidence import fence
from tests.processes.launching import command
from tests.support import eventually

TAKEN_AWAY = {
    "the directory": 'rm -r "$OLDPWD"',
    "the identity": 'rm "$OLDPWD/identity"',
    "a link for the identity": 'ln -sf /etc/passwd "$OLDPWD/identity"',
    "a link for the exit": 'ln -s /etc/passwd "$OLDPWD/exit"',
}


@pytest.mark.parametrize("taken", TAKEN_AWAY)
async def test_a_command_that_takes_its_own_evidence_away_was_started_all_the_same(tmp_path: Path, taken: str) -> None:
    """Nobody may say that nothing was done: neither the daemon that waited nor one that comes later."""
    spec = command(tmp_path, f"cd {tmp_path}/t1c1; cd ..; echo did >> effect; {TAKEN_AWAY[taken]}; echo said")
    ended = await LauncherSpawner().run(spec)
    assert (tmp_path / "effect").read_text() == "did\n"
    assert ended is None or ended.code == 0
    later = (await to_thread.run_sync(fence, spec.call_dir)).trace
    assert later in ((Trace.NONE,) if taken == "the directory" else (Trace.LOST, Trace.EXITED))


@pytest.mark.parametrize("taken", TAKEN_AWAY)
async def test_a_command_that_takes_its_own_evidence_away_is_ended_all_the_same(tmp_path: Path, taken: str) -> None:
    spec = command(tmp_path, f"cd {tmp_path}/t1c1; cd ..; {TAKEN_AWAY[taken]}; echo $$ > begun; sleep 60; touch ended")
    spawner = LauncherSpawner()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(spawner.run, spec)
        await eventually(lambda: (tmp_path / "begun").exists() and (tmp_path / "begun").stat().st_size)
        shell = int(await to_thread.run_sync((tmp_path / "begun").read_text))
        await spawner.end(spec.call_dir, by=EndedBy.CANCEL, grace_s=5)
    assert not Path(f"/proc/{shell}").exists()
    assert not (tmp_path / "ended").exists()


async def test_where_something_stands_a_fence_writes_nothing(tmp_path: Path) -> None:
    """So that a disk without room is no obstacle to hear how a call ended, or to end it."""
    spec = command(tmp_path, "true")
    await LauncherSpawner().run(spec)
    before = spec.call_dir.stat().st_mtime_ns
    assert (await to_thread.run_sync(fence, spec.call_dir)).trace is Trace.EXITED
    assert spec.call_dir.stat().st_mtime_ns == before
