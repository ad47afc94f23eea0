"""A call that leaves no process to anybody else is ended, and named, and the next call begins."""

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from onward.processes.crowd import CROWD, greediest
from tests.processes.delegated import within
from tests.support import until

PIDS = Path("/sys/fs/cgroup/pids")
TASKS = 80

# It goes on taking each process that becomes free, and does not mind being asked to end.
BOMB = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
while True:
    try:
        if os.fork() == 0:
            time.sleep(60)
    except OSError:
        time.sleep(0.01)
"""

# A daemon that runs a call which takes all processes there are, and then another one.
DAEMON = """
import json, os, sys
from pathlib import Path
import anyio
from onward.ports.process import EndedBy, LaunchSpec
from onward.processes import LauncherSpawner

runs, ends = Path(sys.argv[1]), {}
spawner = LauncherSpawner()

async def run(call_id, script):
    call_dir = runs / call_id
    call_dir.mkdir()
    env = {"PATH": os.environ["PATH"], "ONWARD_INSTANCE": str(runs), "ONWARD_RUN_ID": "r-1", "ONWARD_CALL_ID": call_id}
    spec = LaunchSpec(argv=("/bin/sh", "-c", script), cwd="/", env=env, call_dir=call_dir, runs_lock=runs / ".lock")
    ended = await spawner.run(spec)
    ends[call_id] = [ended.code, ended.ended_by, ended.why]

async def main():
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run, "t1c1", "echo begun; sleep 60")
        tasks.start_soon(run, "t1c2", f"exec {sys.executable} -c '{sys.argv[4]}'")
        while int(Path(sys.argv[2], "pids.current").read_text()) < int(sys.argv[3]):
            await anyio.sleep(0.01)
        await run("t1c3", "echo here")
        await spawner.end(runs / "t1c1", by=EndedBy.STOP)

anyio.run(main)
print(json.dumps(ends))
"""


@pytest.fixture
def few_processes() -> Iterator[Path]:
    """A cgroup that may hold no more than `TASKS` tasks."""
    group = PIDS / f"onward-test-{os.getpid()}-{secrets.token_hex(4)}"
    try:
        group.mkdir()
        (group / "pids.max").write_text(str(TASKS))
    except OSError as error:
        pytest.skip(f"no process limit can be set here: {error}")
    yield group

    def emptied() -> bool:
        for pid in (group / "cgroup.procs").read_text().split():
            os.kill(int(pid), 9)
        return int((group / "pids.current").read_text()) == 0

    until(emptied)
    group.rmdir()


def test_a_launch_without_processes_ends_the_call_that_has_most(few_processes: Path, tmp_path: Path) -> None:
    argv = within(few_processes, [sys.executable, "-c", DAEMON, str(tmp_path), str(few_processes), str(TASKS), BOMB])
    done = subprocess.run(argv, capture_output=True, timeout=60, text=True)
    assert done.returncode == 0, done.stderr
    ends = json.loads(done.stdout.splitlines()[-1])
    assert ends["t1c3"] == [0, "itself", None]
    code, ended_by, why = ends["t1c2"]
    assert (code, ended_by) == (-9, "stop")
    assert "no other could be started" in why
    assert ends["t1c1"] == [-15, "stop", None]
    (named,) = [line for line in done.stdout.splitlines() if "had the most" in line]
    assert "r-1" in named
    assert "t1c2" in named


@pytest.mark.parametrize(
    ("tasks", "chosen"),
    [
        ({}, None),
        ({"a": CROWD - 1, "b": 1}, None),
        ({"a": CROWD, "b": 1}, "a"),
        ({"a": 40, "b": 90}, "b"),
        ({"b": 90, "a": 90}, "a"),
    ],
)
def test_who_is_to_blame(tasks: dict[str, int], chosen: str | None) -> None:
    found = greediest({Path(name): number for name, number in tasks.items()})
    assert found == (None if chosen is None else Path(chosen))
