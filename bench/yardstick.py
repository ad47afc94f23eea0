"""R, the yardstick: the least that a durable agent loop has to do, written by hand.

One JSONL file a run, one fdatasync a step (before the tools run); results are covered by the next one. No checksum, no
validation, no policy, no recovery. `python -m bench.yardstick` prints its own figures.
"""

import asyncio
import gc
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import orjson

from bench.common import CALLS, TURN_TEXTS, Effects, Json, Meter, Moment, by_turns, growth, median, now, show


class Flusher:
    """One thread: all who wait are flushed together, different files side by side."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._wake = threading.Condition()
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._pool = ThreadPoolExecutor(8)
        self.count = 0
        threading.Thread(target=self._run, daemon=True).start()

    def flush(self, fd: int) -> "asyncio.Future[None]":
        done = self._loop.create_future()
        with self._wake:
            self._waiting.append((fd, done))
            self._wake.notify()
        return done

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._waiting:
                    self._wake.wait()
                waiting, self._waiting = self._waiting, []
            fds = {fd for fd, _ in waiting}
            if len(fds) == 1:
                os.fdatasync(fds.pop())
                self.count += 1
            else:
                self.count += len(list(self._pool.map(os.fdatasync, fds)))
            self._loop.call_soon_threadsafe(_release, waiting)


def _release(waiting: "list[tuple[int, asyncio.Future[None]]]") -> None:
    for _, done in waiting:
        if not done.done():
            done.set_result(None)


class Run:
    """One agent."""

    def __init__(self, root: Path, name: str, flusher: Flusher | None) -> None:
        self.name = name
        self._flusher = flusher
        directory = root / "runs" / name
        if not directory.exists():
            directory.mkdir(parents=True)
            self._write_meta(directory)
        self.meta, self.messages, self.pending, self.step = fold(directory)
        self.fd = os.open(directory / "journal", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def _write_meta(self, directory: Path) -> None:
        temporary = directory / "meta.tmp"
        with temporary.open("wb") as file:
            file.write(orjson.dumps({"id": self.name, "status": "running", "goal": "x" * 800, "created": time.time()}))
            file.flush()
            if self._flusher:
                os.fsync(file.fileno())
        temporary.rename(directory / "meta")
        if self._flusher:
            fd = os.open(directory, os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)

    async def put(self, record: Json, *, durable: bool) -> None:
        os.write(self.fd, orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))
        if durable and self._flusher:
            await self._flusher.flush(self.fd)

    async def call(self, effects: Effects, call: Json) -> Json:
        out = effects.add(self.name, call["arguments"]["step"], call["arguments"]["position"])
        await self.put({"t": "done", "id": call["id"], "ok": True, "out": out, "ts": time.time()}, durable=False)
        return {"role": "tool", "tool_call_id": call["id"], "content": out}

    async def ask(self, step: int, calls: int = CALLS) -> list[Json]:
        made = [
            {"id": f"call_{self.name}_{step}_{n}", "name": "work", "arguments": {"step": step, "position": n}}
            for n in range(calls)
        ]
        record = {"t": "batch", "step": step, "text": TURN_TEXTS[step % 8], "calls": made, "ts": time.time()}
        await self.put(record, durable=True)
        self.messages.append({"role": "assistant", "content": record["text"], "tool_calls": made})
        return made

    async def go(self, effects: Effects, steps: int, stamps: list[Moment] | None = None) -> None:
        for step in range(self.step, steps):
            if stamps is not None:
                stamps.append(now())
            calls = await self.ask(step)
            self.messages += await asyncio.gather(*(self.call(effects, call) for call in calls))
        await self.put({"t": "end", "ts": time.time()}, durable=True)
        if stamps is not None:
            stamps.append(now())


def fold(directory: Path) -> tuple[Json, list[Json], dict[str, Json], int]:
    """Return meta, messages, pending calls by id, and the next step."""
    meta: Json = orjson.loads((directory / "meta").read_bytes())
    journal = directory / "journal"
    messages: list[Json] = []
    pending: dict[str, Json] = {}
    step = 0
    for line in journal.read_bytes().split(b"\n") if journal.exists() else ():
        if not line:
            continue
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError:
            break
        if record["t"] == "batch":
            messages.append({"role": "assistant", "content": record["text"], "tool_calls": record["calls"]})
            pending = {call["id"]: call for call in record["calls"]}
            step = record["step"] + 1
        elif record["t"] == "done":
            messages.append({"role": "tool", "tool_call_id": record["id"], "content": record["out"]})
            pending.pop(record["id"], None)
        elif record["t"] == "end":
            meta["status"] = "done"
    return meta, messages, pending, step


async def w1(root: Path, agents: int, steps: int) -> Json:
    flusher, effects, stamps = Flusher(asyncio.get_running_loop()), Effects(root), list[Moment]()
    meter = Meter()
    runs = [Run(root, str(number), flusher) for number in range(agents)]
    await asyncio.gather(*(run.go(effects, steps, stamps if agents == 1 else None) for run in runs))
    return report(meter.stop(), agents * steps, flusher.count, stamps)


def report(used: Json, steps: int, flushes: int, stamps: list[Moment]) -> Json:
    """Return the figures of a W1, of R or of Onward."""
    figures: Json = {
        "steps_s": steps / used["wall_s"],
        "ms_per_step": used["wall_s"] * 1e3 / steps,
        "cpu_ms_per_step": used["cpu_s"] * 1e3 / steps,
        "kib_per_step": used["written_kib"] / steps,
        "flushes_per_step": flushes / steps,
        "rss_mib": used["rss_mib"],
    }
    if len(stamps) > 1000:
        figures["growth"], figures["cpu_growth"] = map(growth, map(list, zip(*stamps, strict=True)))
    return figures


async def build(root: Path, count: int, steps: int) -> None:
    """Make interrupted runs: `steps` steps, then a batch of 4 calls of which 2 are done."""
    effects = Effects(root)
    for number in range(count):
        run = Run(root, str(number), None)
        for step in range(steps):
            for call in await run.ask(step):
                await run.call(effects, call)
        for call in (await run.ask(steps, 4))[:2]:
            await run.call(effects, call)
        os.close(run.fd)


def w2(root: Path, count: int, steps: int) -> Json:
    """Fold interrupted runs in this process, which keeps them."""
    gc.collect()
    meter = Meter()
    found = [fold(Path(entry.path)) for entry in os.scandir(root / "runs")]
    used = meter.stop()
    assert len(found) == count
    assert all(len(pending) == 2 and len(messages) == steps * 3 + 3 for _, messages, pending, _ in found)
    return per_run(used, count)


def per_run(used: Json, count: int) -> Json:
    """Return the figures of a W2, of R or of Onward."""
    return {
        "ms_per_run": used["wall_s"] * 1e3 / count,
        "cpu_ms_per_run": used["cpu_s"] * 1e3 / count,
        "kib_per_run": used["grown_kib"] / count,
    }


def main(verb: str, directory: str, *numbers: str) -> Any:
    root, (first, second) = Path(directory), map(int, numbers)
    match verb:
        case "w1":
            return asyncio.run(w1(root, first, second))
        case "w2":
            asyncio.run(build(root, first, second))
            return w2(root, first, second)
        case "build":
            return asyncio.run(build(root, first, second))
        case "load":
            return w2(root, first, second)
    raise ValueError(verb)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        show(**(main(*sys.argv[1:]) or {}))
    else:
        found = by_turns(
            3, one=("yardstick", "w1", 1, 200), many=("yardstick", "w1", 50, 20), load=("yardstick", "w2", 1000, 20)
        )
        for name, results in found.items():
            show(yardstick=name, **{member: median(results, member) for member in results[0]})
