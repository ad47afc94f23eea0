"""A store in memory: journals are lists of sealed lines, so what is read back went through the real format.

One `MemoryStore` is the disk: a test that restarts its daemon opens runs of the same object again, after `power_cut`
where what was not durable is to be gone. Only the directories of calls are real ones, for commands print into files.
"""

import asyncio
import hashlib
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from anyio import lowlevel, to_thread

from onward.core import fold
from onward.core.ids import is_call_id, parse_run_id
from onward.core.line import BLOB_BYTES, decode, encode_body, parse, seal
from onward.core.masking import KnownSecrets
from onward.core.records import Json, Record, RunStarted
from onward.core.replay import NotAJournal, Replay, Replayer
from onward.core.state import RunState
from onward.core.times import stamp
from onward.errors import Conflict, DiskFull, NotFound, StoreError
from onward.ports.clock import Clock
from onward.ports.store import Beside, Decide, Listed


@dataclass(slots=True)
class StoredRun:
    """What the disk holds of one run. `durable` counts the lines that a power cut leaves."""

    lines: list[bytes] = field(default_factory=list)
    durable: int = 0
    index: bytes | None = None
    questions: tuple[Json, ...] = ()
    blobs: dict[str, bytes] = field(default_factory=dict)
    log: "MemoryRunLog | None" = None

    @property
    def size(self) -> int:
        return sum(map(len, self.lines))


class MemoryRunLog:
    """Implements `onward.ports.store.RunLog`."""

    def __init__(self, store: "MemoryStore", run: StoredRun, state: RunState, beside: Beside) -> None:
        self.state = state
        self.beside = beside
        self.on_durable: Callable[[int], None] | None = None
        self._store = store
        self._run = run
        self._durable_seq = state.seq
        self._dead: StoreError | None = None

    @property
    def durable_seq(self) -> int:
        return self._durable_seq

    async def append(self, *records: Record) -> int:
        return await self.write(lambda: records)

    async def write(self, decide: Decide) -> int:
        bodies = self._bodies(decide())
        while any(len(body) > BLOB_BYTES for body in bodies):
            await lowlevel.checkpoint()  # as on a disk: others write while a blob is written
            before, bodies = bodies, self._bodies(decide())
            if bodies == before:
                break
        self._check()
        self._store.check_space()
        ts, first = stamp(self._store.clock.now()), self.state.seq + 1
        for seq, body in enumerate(bodies, first):
            line = {**orjson.loads(body), "seq": seq, "ts": ts}
            self._run.lines.append(seal(seq, self._durable_seq, ts, self._placed(body, line["type"])))
            fold.apply(self.state, line)
        asyncio.get_running_loop().call_soon(self._become_durable, self.state.seq, len(self._run.lines))
        return self.state.seq

    async def flush(self) -> None:
        self._check()
        await lowlevel.checkpoint()
        self._check()
        self._become_durable(self.state.seq, len(self._run.lines))

    async def write_index(self, index: Json, sidecars: Mapping[str, list[Json]] | None = None) -> None:
        position = {"seq": self.state.seq, "bytes": self._run.size, "checkpoint_offset": None}
        data = orjson.dumps({**index, "journal": position})
        await self.flush()
        self._store.check_space()
        self._run.index = data
        self._run.questions = tuple((sidecars or {}).get("interactions", ()))

    async def close(self) -> None:
        if self._run.log is self:
            self._run.log = None
            try:
                await self.flush()
            finally:
                self.fail(StoreError(f"the journal of {self.state.run_id} is closed"))

    def fail(self, error: StoreError) -> None:
        """Let every later call raise: the journal has to be opened again."""
        self._dead = self._dead or error

    def _bodies(self, records: Sequence[Record]) -> list[bytes]:
        return [self._store.secrets.mask_record(encode_body(record.to_json())) for record in records]

    def _check(self) -> None:
        if self._dead is not None:
            raise self._dead

    def _placed(self, body: bytes, record_type: str) -> bytes:
        if len(body) <= BLOB_BYTES:
            return body
        sha = self._store.keep(self._run, body)
        return encode_body({"type": record_type, "blob": sha, "bytes": len(body)})

    def _become_durable(self, seq: int, lines: int) -> None:
        if self._dead is None and seq > self._durable_seq:
            self._durable_seq, self._run.durable = seq, lines
            if self.on_durable is not None:
                self.on_durable(seq)


class MemoryStore:
    """Implements `onward.ports.store.RunStore`. While `full`, nothing can be written.

    `evidence` is an existing directory; below it are the calls of all runs.
    """

    machine_id = "a machine in memory"
    runs_inode = 1

    def __init__(self, clock: Clock, evidence: Path) -> None:
        self.clock = clock
        self.secrets = KnownSecrets()
        self.runs: dict[str, StoredRun] = {}
        self.full = False
        self.instance = "0" * 32
        self.held: str | None = None
        self._evidence = evidence
        self.noted: list[Json] = []
        """The facts so far."""

    @property
    def lock_path(self) -> Path:
        return self._evidence / ".lock"

    def power_cut(self) -> None:
        """Lose what is not durable; every open log is dead."""
        for run in self.runs.values():
            del run.lines[run.durable :]
            if run.log is not None:
                run.log.fail(StoreError("the power was cut"))
                run.log = None

    def check_space(self) -> None:
        """Raise DiskFull while the disk is full."""
        if self.full:
            raise DiskFull("no space left in memory")

    def keep(self, run: StoredRun, data: bytes) -> str:
        """Keep a blob; returns its name."""
        self.check_space()
        data = self.secrets.mask(data)
        sha = hashlib.sha256(data).hexdigest()
        run.blobs[sha] = data
        return sha

    async def list_runs(self) -> list[Listed]:
        await lowlevel.checkpoint()
        return [self._listed(run_id, run) for run_id, run in self.runs.items()]

    async def create(self, started: RunStarted) -> None:
        await lowlevel.checkpoint()
        run_id = parse_run_id(started.run_id)
        if run_id in self.runs:
            raise Conflict(f"run {run_id} exists already")
        self.check_space()
        line = seal(1, 0, stamp(self.clock.now()), self.secrets.mask_record(encode_body(started.to_json())))
        self.runs[run_id] = StoredRun(lines=[line], durable=1)

    async def open(self, run_id: str) -> MemoryRunLog:
        run = self._run(run_id)
        replay = await self.read(run_id)
        run.durable = len(run.lines)
        index_seq = None if run.index is None else orjson.loads(run.index)["journal"]["seq"]
        beside = Beside(index_seq=index_seq, call_dirs=tuple(await self.call_dirs(run_id)))
        run.log = MemoryRunLog(self, run, replay.state, beside)
        return run.log

    async def read(self, run_id: str) -> Replay:
        await lowlevel.checkpoint()
        run = self._run(run_id)
        replayer = Replayer(run.blobs.get)
        for line in run.lines:
            replayer.feed(line)
        replay = replayer.finish()
        if replay.state.run_id != run_id:
            raise NotAJournal(f"its RunStarted names {replay.state.run_id!r}: this is a copy of that run")
        return replay

    async def records(self, run_id: str, *, after: int, limit: int, up_to: int | None = None) -> list[Json]:
        await lowlevel.checkpoint()
        run = self._run(run_id)
        found: list[Json] = []
        for line in run.lines:
            record = decode(line[:-1])
            if after < record["seq"] and (up_to is None or record["seq"] <= up_to) and len(found) < limit:
                sha = record.get("blob")
                found.append({**parse(run.blobs[sha]), **record} if sha in run.blobs else record)
        return found

    async def put_blob(self, run_id: str, data: bytes) -> str:
        await lowlevel.checkpoint()
        return self.keep(self._run(run_id), data)

    async def call_dirs(self, run_id: str) -> list[str]:
        self._run(run_id)
        calls = self._evidence / run_id
        return await to_thread.run_sync(lambda: sorted(os.listdir(calls)) if calls.is_dir() else [])

    def call_dir(self, run_id: str, call_id: str) -> Path:
        if not is_call_id(call_id):
            raise NotFound(f"{call_id[:40]!r} is not a call id")
        return self._evidence / parse_run_id(run_id) / call_id

    async def make_call_dir(self, run_id: str, call_id: str) -> Path:
        path = self.call_dir(run_id, call_id)
        self.check_space()
        try:
            await to_thread.run_sync(lambda: path.mkdir(0o700, parents=True))
        except OSError as error:
            raise StoreError(f"making the directory of call {call_id} of {run_id}: {error.strerror}") from error
        return path

    async def remove_call_dir(self, run_id: str, call_id: str) -> None:
        path = self.call_dir(run_id, call_id)
        await to_thread.run_sync(lambda: shutil.rmtree(path, ignore_errors=True))

    async def set_call_dirs_aside(self, run_id: str) -> None:
        for name in filter(is_call_id, await self.call_dirs(run_id)):
            path = self.call_dir(run_id, name)
            await to_thread.run_sync(path.rename, path.with_name(f"{name}.aside"))

    async def renew_instance(self) -> None:
        await lowlevel.checkpoint()
        self.check_space()
        self.instance = f"{int(self.instance) + 1:032}"

    async def hold(self) -> str | None:
        await lowlevel.checkpoint()
        return self.held

    async def set_hold(self, why: str | None) -> None:
        await lowlevel.checkpoint()
        if why is not None:
            self.check_space()
        self.held = why

    async def append_fact(self, **members: Any) -> None:
        await lowlevel.checkpoint()
        self.check_space()
        self.noted.append({"seq": len(self.noted) + 1, "ts": stamp(self.clock.now()), **members})

    async def facts(self) -> list[Json]:
        await lowlevel.checkpoint()
        return list(self.noted)

    async def close(self) -> None:
        await lowlevel.checkpoint()

    def _run(self, run_id: str) -> StoredRun:
        try:
            return self.runs[parse_run_id(run_id)]
        except KeyError:
            raise NotFound(f"there is no run {run_id!r}") from None

    def _listed(self, run_id: str, run: StoredRun) -> Listed:
        index = None if run.index is None else orjson.loads(run.index)
        believed = index is not None and index["journal"]["bytes"] == run.size
        questions = run.questions if believed else ()
        return Listed(run_id=run_id, index=index if believed else None, stale_index=index, questions=questions)
