"""What the benchmarks share: the fake work, how a process is measured, and how results are printed.

Nothing here is compared with absolute figures of another machine: Onward and the yardstick run by turns, each in its
own process, and their medians are compared.
"""

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

Json = dict[str, Any]

TURN_BYTES = 1024
RESULT_BYTES = 2048
CALLS = 2

QUIET_SYNC_US = 400
QUIET_LOOP_MS = 35
QUIET_WAIT_S = float(os.environ.get("BENCH_QUIET_S", "10"))
"""At most so long a measurement waits for a quiet moment of the machine."""


def _text(size: int, seed: int) -> str:
    words = random.Random(seed)
    letters = "abcdefghijklmnopqrstuvwxyz"
    made = " ".join("".join(words.choices(letters, k=words.randint(2, 9))) for _ in range(size // 3))
    return made.replace(" q", '\n"q')[:size]


TURN_TEXTS = [_text(TURN_BYTES, seed) for seed in range(8)]
RESULT_TEXTS = [_text(RESULT_BYTES, seed) for seed in range(8, 16)]


class Effects:
    """The side-effect file: one line a call."""

    def __init__(self, directory: Path) -> None:
        self._fd = os.open(directory / "effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def add(self, run_id: str, step: int, position: int) -> str:
        """Do the effect of a call; returns its 2 KiB result."""
        os.write(self._fd, f"{run_id} {step} {position}\n".encode())
        return RESULT_TEXTS[(step + position) % 8]


class Meter:
    """What this process used between its making and `stop`."""

    def __init__(self) -> None:
        self._written, self._rss, self._cpu = written_bytes(), rss_kib(), time.process_time()
        self._began = time.perf_counter()

    def stop(self) -> Json:
        wall = time.perf_counter() - self._began
        return {
            "wall_s": wall,
            "cpu_s": time.process_time() - self._cpu,
            "written_kib": (written_bytes() - self._written) / 1024,
            "rss_mib": rss_kib() / 1024,
            "grown_kib": rss_kib() - self._rss,
        }


Moment = tuple[float, float]


def now() -> Moment:
    """Return the time by the clock, and what this thread used of the processor."""
    return time.perf_counter(), time.thread_time()


def written_bytes() -> int:
    text = Path("/proc/self/io").read_text()
    return int(text.partition("wchar: ")[2].split()[0])


def rss_kib(pid: int | str = "self") -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0])


def growth(stamps: list[float]) -> float:
    """Return how much more the last 50 steps take than the first 50, by the times at which steps began."""
    took = [after - before for before, after in pairwise(stamps)]
    return statistics.median(took[-51:-1]) / statistics.median(took[:50])


def quiet() -> None:
    """Wait, a bounded time, until flushes and the processor are as quick as on an idle machine."""
    os.sync()
    end = time.monotonic() + QUIET_WAIT_S
    while time.monotonic() < end and not _is_quiet():
        time.sleep(0.5)


def _is_quiet() -> bool:
    took = []
    with tempfile.TemporaryFile() as file:
        for _ in range(25):
            began = time.perf_counter()
            os.write(file.fileno(), bytes(4096))
            os.fdatasync(file.fileno())
            took.append(time.perf_counter() - began)
    began = time.perf_counter()
    for _ in range(400_000):
        pass
    loop_ms = (time.perf_counter() - began) * 1e3
    return statistics.median(took) * 1e6 < QUIET_SYNC_US and loop_ms < QUIET_LOOP_MS


@contextmanager
def fresh_dir() -> Iterator[Path]:
    """A directory on a real disk: set TMPDIR where /tmp is none."""
    with tempfile.TemporaryDirectory(prefix="onward-bench-") as path:
        yield Path(path)


def measured(module: str, *arguments: object) -> Json:
    """Run `python -m bench.MODULE ARGUMENTS` in its own process, at a quiet moment; returns what it printed last."""
    quiet()
    command = [sys.executable, "-m", f"bench.{module}", *map(str, arguments)]
    output = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=600, check=True).stdout
    last: Json = json.loads(output.splitlines()[-1])
    return last


def by_turns(rounds: int, **contenders: tuple[Any, ...]) -> dict[str, list[Json]]:
    """Measure each contender once a round, in changing order; each is a module and its arguments after a directory."""
    results: dict[str, list[Json]] = {name: [] for name in contenders}
    for number in range(rounds):
        order = sorted(contenders, reverse=number % 2 == 1)
        for name in order:
            module, verb, *arguments = contenders[name]
            with fresh_dir() as directory:
                results[name].append(measured(module, verb, directory, *arguments))
    return results


def median(results: list[Json], member: str) -> float:
    return float(statistics.median(result[member] for result in results))


def ratio(ours: list[Json], theirs: list[Json], member: str) -> tuple[float, float, float]:
    """Return the ratio of the medians, and the lowest and highest ratio of one round."""
    rounds = [one[member] / other[member] for one, other in zip(ours, theirs, strict=True)]
    return median(ours, member) / median(theirs, member), min(rounds), max(rounds)


def show(**members: object) -> None:
    """Print one JSON line."""
    rounded = {name: round(value, 3) if isinstance(value, float) else value for name, value in members.items()}
    print(json.dumps(rounded), flush=True)


def row(
    name: str, value: float, *, at_most: float | None = None, at_least: float | None = None, **more: object
) -> None:
    """Print one line of the summary: a figure and its target (None: it has none)."""
    reached = (at_most is None or value <= at_most) and (at_least is None or value >= at_least)
    target = f"<= {at_most:g}" if at_most is not None else f">= {at_least:g}" if at_least is not None else None
    show(row=name, value=value, target=target, reached=reached if target else None, **more)
