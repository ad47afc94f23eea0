"""What the launcher costs: `sh -c true` bare and through it, interleaved in one run. Prints JSON lines."""

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import anyio

from bench.common import row, show
from onward.ports.process import LaunchSpec
from onward.processes import LauncherSpawner

ARGV = ("/bin/sh", "-c", "true")
ENV = {"PATH": "/usr/bin:/bin", "ONWARD_INSTANCE": "bench", "ONWARD_RUN_ID": "bench-1"}


def bare() -> float:
    began = time.perf_counter()
    os.waitpid(os.posix_spawn(ARGV[0], ARGV, ENV), 0)
    return time.perf_counter() - began


async def launched(spawner: LauncherSpawner, runs: Path, number: int) -> float:
    call_dir = runs / f"t{number}c1"
    call_dir.mkdir(mode=0o700)
    spec = LaunchSpec(
        argv=ARGV,
        cwd="/",
        env=ENV | {"ONWARD_CALL_ID": call_dir.name},
        call_dir=call_dir,
        runs_lock=runs / ".lock",
    )
    began = time.perf_counter()
    ended = await spawner.run(spec)
    took = time.perf_counter() - began
    assert ended is not None
    assert ended.code == 0
    return took


async def measure(rounds: int) -> tuple[float, float]:
    spawner = LauncherSpawner()
    with tempfile.TemporaryDirectory() as runs:
        pairs = [(bare(), await launched(spawner, Path(runs), number)) for number in range(rounds + 3)]
    bare_ms, launched_ms = (statistics.median(times) * 1000 for times in zip(*pairs[3:], strict=True))
    return bare_ms, launched_ms


if __name__ == "__main__":
    bare_ms, launched_ms = anyio.run(measure, int(sys.argv[1]) if len(sys.argv) > 1 else 60)
    show(bare_ms=bare_ms, launched_ms=launched_ms)
    row("a shell call, over a bare one: ms", launched_ms - bare_ms, at_most=20)
