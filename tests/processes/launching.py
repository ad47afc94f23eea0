"""Real commands under real launchers, for tests."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from onward.ports.process import CallExit, LaunchSpec, Trace
from onward.processes import LauncherSpawner
from onward.processes.evidence import probe
from onward.processes.launcher_kernel import carries, parse_stat, read_small
from tests.support import state_of, until

INSTANCE = f"instance-under-test-{os.getpid()}"
"""Of this process alone: what ends the leftovers of an instance must not meet another test's."""

# A daemon that does nothing but run one command; what it is given says which.
DAEMON = """
import json, sys
from pathlib import Path
import anyio
from onward.ports.process import LaunchSpec
from onward.processes import LauncherSpawner
told = json.loads(sys.stdin.read())
told |= {"argv": tuple(told["argv"]), "call_dir": Path(told["call_dir"]), "runs_lock": Path(told["runs_lock"])}
anyio.run(LauncherSpawner().run, LaunchSpec(**told))
"""


def command(runs: Path, script: str, *, call_id: str = "t1c1", **changes: Any) -> LaunchSpec:
    """A shell script as a call of its own. Tests that end trees by marker use `runs` as the run's name."""
    call_dir = runs / call_id
    call_dir.mkdir(mode=0o700)
    fields: dict[str, Any] = {
        "argv": ("/bin/sh", "-c", script),
        "cwd": str(runs),
        "env": {"PATH": os.environ["PATH"], **markers(runs, call_id)},
        "call_dir": call_dir,
        "runs_lock": runs / ".lock",
    }
    return LaunchSpec(**fields | changes)


def markers(runs: Path, call_id: str, instance: str = INSTANCE) -> dict[str, str]:
    return {"ONWARD_INSTANCE": instance, "ONWARD_RUN_ID": str(runs), "ONWARD_CALL_ID": call_id}


async def ended_at_its_deadline(spawner: LauncherSpawner, spec: LaunchSpec) -> tuple[LaunchSpec, CallExit]:
    """Run a command that prints `begun` beyond its deadline: a later one, where it had not begun by then.

    Each try is a call of its own; the last one is returned.
    """
    number, deadline_s = 1, 0.5
    while True:
        call_dir = spec.call_dir.with_name(f"t{number}c1")
        call_dir.mkdir(mode=0o700, exist_ok=True)
        env = {**spec.env, "ONWARD_CALL_ID": call_dir.name}
        spec = replace(spec, call_dir=call_dir, env=env, deadline_s=deadline_s)
        ended = await spawner.run(spec)
        assert ended is not None
        if printed(call_dir, "begun"):
            return spec, ended
        number, deadline_s = number + 1, deadline_s * 4


def start_daemon(spec: LaunchSpec, **env: str) -> "subprocess.Popen[bytes]":
    told = {name: getattr(spec, name) for name in LaunchSpec.__dataclass_fields__}
    told |= {"call_dir": str(spec.call_dir), "runs_lock": str(spec.runs_lock)}
    daemon = subprocess.Popen([sys.executable, "-c", DAEMON], stdin=subprocess.PIPE, env={**os.environ, **env})
    assert daemon.stdin is not None
    daemon.stdin.write(json.dumps(told).encode())
    daemon.stdin.close()
    return daemon


def kill(daemon: "subprocess.Popen[bytes]") -> None:
    daemon.send_signal(signal.SIGKILL)
    daemon.wait(10)


def launcher_of(call_dir: Path) -> int:
    """The pid of the living launcher, waited for."""

    def pid() -> int | None:
        found = probe(call_dir)
        return found.pid if found.trace is Trace.ALIVE else None

    found = until(pid)
    assert found is not None
    return found


def printed(call_dir: Path, text: str, name: str = "stdout") -> bool:
    file = call_dir / name
    return file.exists() and text.encode() in file.read_bytes()


def living(runs: Path) -> list[int]:
    """Every process that carries the markers of a call of this test, zombies not counted."""
    wanted = frozenset({f"ONWARD_RUN_ID={runs}".encode()})
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and carries(int(name), wanted)]


def exists(pid: int) -> bool:
    return state_of(pid) not in ("", "Z")


def children(pid: int) -> list[int]:
    names = [name for name in os.listdir("/proc") if name.isdigit()]
    found = [(int(name), parse_stat(read_small(f"/proc/{name}/stat"))) for name in names]
    return [child for child, parsed in found if parsed and parsed[0] == pid]
