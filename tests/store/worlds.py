"""Runs directories on the real disk, and faults of that disk, for the tests of the store."""

import os
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onward.core.index import index_of
from onward.core.line import decode
from onward.core.records import AssistantTurn, MessageAdded, RunStarted
from onward.core.vocabulary import Source
from onward.store.clock import SystemClock
from onward.store.filestore import FileStore, open_store
from onward.store.lock import this_process
from onward.testing import faults
from onward.testing.faults import FaultPlan

RUN = "worker-1"
TS = "2026-01-01T00:00:00.000000Z"


@asynccontextmanager
async def store_at(path: Path, lock_wait_s: float = 0.0) -> AsyncIterator[FileStore]:
    """Open a runs directory as a daemon does."""
    store = await open_store(path, SystemClock(), this_process("boot", 1), lock_wait_s=lock_wait_s)
    try:
        yield store
    finally:
        await store.close()


def started(run_id: str = RUN, **members: Any) -> RunStarted:
    fields: dict[str, Any] = {
        "run_id": run_id, "kind": "native", "agent": {}, "agent_name": "worker", "agent_hash": "h", "task": "do it",
        "workspace": "/w", "limits": {}, "by": "me", "on_restart": "resume", "version": "0",
    }  # fmt: skip
    return RunStarted(**fields | members)


async def indexed(store: FileStore, run_id: str = RUN) -> None:
    """Make a run of two records, and write its index."""
    await store.create(started(run_id))
    log = await store.open(run_id)
    await log.append(said(1))
    await log.write_index(index_of(log.state))
    await log.close()


def said(number: int, text: str = "and this") -> MessageAdded:
    return MessageAdded(message_id=f"m{number}", source=Source.HUMAN, content=text, by="me")


def turn(number: int, text: str = "done") -> AssistantTurn:
    return AssistantTurn(
        turn=number, seen=1, content=[{"type": "text", "text": text}], stop_reason="end_turn", usage={}, cost_usd=0.0,
        provider="p", model="m", active_s=0.0,
    )  # fmt: skip


def journal_of(runs: Path, run_id: str = RUN) -> Path:
    return runs / run_id / "journal.jsonl"


def records_in(file: Path) -> list[dict[str, Any]]:
    """Every line of a journal, each of which must be whole."""
    data = file.read_bytes()
    assert data.endswith(b"\n")
    return [decode(line) for line in data.split(b"\n")[:-1]]


def descriptors() -> list[str]:
    """What this process has open, by the names of files."""
    names = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            names.append(os.readlink(f"/proc/self/fd/{fd}"))
        except OSError:
            continue
    return sorted(name for name in names if name.startswith("/"))


@dataclass(slots=True)
class Passed(FaultPlan):
    """Notes every fault point that is passed, in order."""

    points: list[str] = field(default_factory=list)

    def hit(self, point: str) -> str | None:
        self.points.append(point)
        return FaultPlan.hit(self, point)


@dataclass(slots=True)
class Gate(FaultPlan):
    """Holds whoever comes to `point` until `let_pass`."""

    point: str = "journal.flush.before"
    arrived: int = 0
    passes: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def hit(self, point: str) -> str | None:
        if point == self.point:
            self.arrived += 1
            assert self.passes.acquire(timeout=30)
        return FaultPlan.hit(self, point)

    def let_pass(self, number: int = 1) -> None:
        self.passes.release(number)


@contextmanager
def installed(plan: FaultPlan) -> Iterator[FaultPlan]:
    faults.install(plan)
    try:
        yield plan
    finally:
        faults.install(None)


@contextmanager
def fault(text: str) -> Iterator[FaultPlan]:
    """Let the disk fail as `ONWARD_FAULT` would say it."""
    with installed(FaultPlan.parse(text)) as plan:
        yield plan
