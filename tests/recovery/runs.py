"""Runs on a real disk, written byte by byte; and one entry of the daemon into them."""

import os
from pathlib import Path

from onward.core.line import decode
from onward.core.plan import RecoveryPlan
from onward.processes import LauncherSpawner
from onward.recovery.recover import Claimant, recover
from onward.store.clock import SystemClock
from onward.supervisor.live import LiveRun
from tests.core import journals as j
from tests.core.journals import Json
from tests.store.worlds import store_at

RUN = "worker-1"


def put(runs: Path, content: "j.Journal | bytes | list[Json]", run_id: str = RUN) -> Path:
    """Write a run's journal; returns the run's directory."""
    if isinstance(content, list):
        content = j.Journal().add(*content)
    directory = runs / run_id
    directory.mkdir(parents=True, mode=0o700)
    runs.chmod(0o700)
    (directory / "journal.jsonl").write_bytes(content if isinstance(content, bytes) else content.bytes)
    return directory


def tree(top: Path) -> dict[str, tuple[int, int, bytes | str]]:
    """Everything below a directory: mode, time of the last change, content."""
    found: dict[str, tuple[int, int, bytes | str]] = {}
    for path in [top, *sorted(top.rglob("*"))]:
        at = path.lstat()
        content: bytes | str = b""
        if path.is_symlink():
            content = os.readlink(path)
        elif path.is_file() and at.st_size < 1 << 20:
            content = path.read_bytes()
        found[str(path.relative_to(top))] = (at.st_mode, at.st_mtime_ns, content)
    return found


def lines_of(run: Path) -> list[bytes]:
    data = (run / "journal.jsonl").read_bytes()
    assert data.endswith(b"\n")
    return data.split(b"\n")[:-1]


def records(run: Path, behind: int = 0) -> list[Json]:
    """Every record that can be read, with a seq above `behind`."""
    found = []
    for text in lines_of(run):
        try:
            found.append(decode(text.removeprefix(b"\xef\xbb\xbf")))
        except ValueError:
            continue
    return [record for record in found if record["seq"] > behind]


async def entered(run: Path, boot_id: str = j.BOOT) -> RecoveryPlan:
    """Recover a run as a daemon does before it goes on with it."""
    claimant = Claimant(machine_id="m", runs_inode=1, boot_id=boot_id, pid=os.getpid(), start_ticks=1)
    async with store_at(run.parent) as store:
        run_log = await store.open(run.name)
        live = LiveRun(run_log, store, SystemClock(), lambda: None)
        try:
            return await recover(live, store, LauncherSpawner(), claimant, run_log.beside)
        finally:
            await live.write_index()
            await live.close()
