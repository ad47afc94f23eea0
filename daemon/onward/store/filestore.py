"""The runs directory on a local disk: implements `onward.ports.store.RunStore`.

Files are touched in worker threads, by the other modules of this room; here an error of the disk becomes a `StoreError`
that says what it stopped.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from onward.core.ids import is_call_id, parse_run_id
from onward.core.line import encode_body, seal
from onward.core.masking import KnownSecrets
from onward.core.records import Json, RunStarted
from onward.core.replay import Replay
from onward.core.times import stamp
from onward.errors import NotFound, Unreadable
from onward.ports.clock import Clock
from onward.ports.store import Listed
from onward.store import call_dirs, directory, disk, lock, rundir
from onward.store.births import give_birth
from onward.store.directory import LOCK, Opened
from onward.store.facts import Facts
from onward.store.flusher import Flusher
from onward.store.journal import Journal
from onward.store.pages import Pages
from onward.store.runlog import FileRunLog
from onward.store.walk import walk

LOCK_AGAIN_S = 0.05
READERS = 2
"""Journals that are read at once: one is folded while another waits for the disk; two cannot be folded side by side."""


class FileStore:
    """All runs of one runs directory; made by `open_store`, which holds the lock."""

    def __init__(self, opened: Opened, clock: Clock, flusher: Flusher, secrets: KnownSecrets) -> None:
        self.path = opened.path
        self.lock_path = opened.path / LOCK
        self.instance = opened.instance
        self.machine_id = opened.machine_id
        self.runs_inode = os.fstat(opened.fd).st_ino
        self.secrets = secrets
        self._fd = opened.fd
        self._held = opened.held
        self._clock = clock
        self._flusher = flusher
        self._facts = Facts(opened.fd, flusher)
        self._pages = Pages()
        self._readers = anyio.CapacityLimiter(READERS)

    @property
    def flushes(self) -> int:
        """Flushes of journals so far."""
        return self._flusher.count

    def tell_flushes(self, took: Callable[[float], None]) -> None:
        """Tell how many seconds each flush of a journal took, on the event loop."""
        self._flusher.took = took

    def still_ours(self) -> bool:
        """Whether the lock file is still the one that is held."""
        return self._held.still_ours()

    async def list_runs(self) -> list[Listed]:
        return await anyio.to_thread.run_sync(walk, self._fd)

    async def create(self, started: RunStarted) -> None:
        body = self.secrets.mask_record(encode_body(started.to_json()))
        line = seal(1, 0, stamp(self._clock.now()), body)
        with _stopped(f"starting run {started.run_id}"):
            await anyio.to_thread.run_sync(give_birth, self._fd, parse_run_id(started.run_id), line)

    async def open(self, run_id: str) -> FileRunLog:
        load, known = rundir.load, parse_run_id(run_id)
        with _stopped(f"opening run {run_id}"):
            loaded = await anyio.to_thread.run_sync(load, self._fd, known, limiter=self._readers)
        replay = loaded.replay
        size = replay.end + (1 if replay.add_newline else 0)
        journal = Journal(loaded.fd, self._flusher, name=run_id, seq=replay.state.seq, size=size)
        checkpoint = (replay.checkpoint_offset, replay.checkpoint_bytes)
        return FileRunLog(self._fd, journal, replay.state, self._clock, checkpoint, self.secrets, loaded.beside)

    async def read(self, run_id: str) -> Replay:
        read, known = rundir.read, parse_run_id(run_id)
        return await anyio.to_thread.run_sync(read, self._fd, known, limiter=self._readers)

    async def records(self, run_id: str, *, after: int, limit: int, up_to: int | None = None) -> list[Json]:
        try:
            read = self._pages.read
            return await anyio.to_thread.run_sync(read, self._fd, parse_run_id(run_id), after, limit, up_to)
        except OSError as error:
            raise Unreadable(f"the journal of {run_id} cannot be read: {error.strerror}") from error

    async def put_blob(self, run_id: str, data: bytes) -> str:
        data = self.secrets.mask(data)
        with _stopped(f"writing a blob of {run_id}"):
            return await anyio.to_thread.run_sync(rundir.write_blob, self._fd, parse_run_id(run_id), data)

    async def call_dirs(self, run_id: str) -> list[str]:
        return await anyio.to_thread.run_sync(call_dirs.names_of, self._fd, parse_run_id(run_id))

    def call_dir(self, run_id: str, call_id: str) -> Path:
        if not is_call_id(call_id):
            raise NotFound(f"{call_id[:40]!r} is not a call id")
        return Path(self.path, parse_run_id(run_id), rundir.CALLS, call_id)

    async def make_call_dir(self, run_id: str, call_id: str) -> Path:
        path = self.call_dir(run_id, call_id)
        with _stopped(f"making the directory of call {call_id} of {run_id}"):
            await anyio.to_thread.run_sync(call_dirs.make, self._fd, run_id, call_id)
        return path

    async def remove_call_dir(self, run_id: str, call_id: str) -> None:
        self.call_dir(run_id, call_id)
        with _stopped(f"removing the evidence of call {call_id} of {run_id}"):
            await anyio.to_thread.run_sync(call_dirs.remove, self._fd, run_id, call_id)

    async def set_call_dirs_aside(self, run_id: str) -> None:
        with _stopped(f"setting the evidence of calls of {run_id} aside"):
            await anyio.to_thread.run_sync(call_dirs.set_aside, self._fd, parse_run_id(run_id))

    async def renew_instance(self) -> None:
        with _stopped("writing a new id of the runs directory"):
            self.instance = await anyio.to_thread.run_sync(directory.new_instance, self._fd)

    async def hold(self) -> str | None:
        return await anyio.to_thread.run_sync(directory.hold_in, self._fd)

    async def set_hold(self, why: str | None) -> None:
        with _stopped(f"writing or removing {directory.HOLD}"):
            await anyio.to_thread.run_sync(directory.set_hold, self._fd, why)

    async def append_fact(self, **members: Any) -> None:
        await self._facts.append(members, stamp(self._clock.now()))

    async def facts(self) -> list[Json]:
        return await self._facts.read()

    async def close(self) -> None:
        self._facts.close()
        await anyio.to_thread.run_sync(self._flusher.close)
        os.close(self._fd)
        self._held.release()


async def open_store(
    path: Path,
    clock: Clock,
    holder: lock.Holder,
    *,
    lock_wait_s: float,
    allow_network_fs: bool = False,
    secrets: KnownSecrets | None = None,
) -> FileStore:
    """Open (and make, if missing) a runs directory and take its lock, before anything in it is read.

    The values in `secrets` are masked in everything that is written. To wait for the lock can be cancelled.

    Raises:
        Refused: Another daemon holds it, it lies on a network file system, or it is not ours.
        StoreError: It cannot be made or opened.
    """
    make_ready = partial(directory.make_ready, path, holder, allow_network_fs=allow_network_fs)
    end = time.monotonic() + lock_wait_s
    while True:
        try:
            with _stopped(_cannot_be_used(path)):
                opened = await anyio.to_thread.run_sync(make_ready)
            break
        except lock.Held:
            if time.monotonic() >= end:
                raise
        await anyio.sleep(LOCK_AGAIN_S)
    return FileStore(opened, clock, Flusher(asyncio.get_running_loop()), secrets or KnownSecrets())


async def open_for_one_act(path: Path, clock: Clock, holder: lock.Holder) -> FileStore:
    """Open a runs directory while no daemon works in it; it is made neither ready nor tidy, only locked, at once.

    Raises:
        Refused: A daemon holds it.
        StoreError, NotFound: It cannot be written, or is not there.
    """
    with _stopped(_cannot_be_used(path)):
        opened = await anyio.to_thread.run_sync(directory.take_at_once, path, holder)
    return FileStore(opened, clock, Flusher(asyncio.get_running_loop()), KnownSecrets())


def _cannot_be_used(path: Path) -> str:
    return f"the runs directory {str(path)!r} cannot be used"


@contextlib.contextmanager
def _stopped(what: str) -> Iterator[None]:
    """Raise the StoreError that says what an error of the disk has stopped."""
    try:
        yield
    except OSError as error:
        raise disk.as_store_error(error, what) from error
