"""The runs directory on a local disk: implements `onward.ports.store.RunStore`."""

import asyncio
import contextlib
import os
import re
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio.to_thread

from onward.core.ids import is_call_id, is_run_id, parse_run_id
from onward.core.line import encode_body, seal
from onward.core.masking import KnownSecrets
from onward.core.records import Json, RunStarted
from onward.core.replay import Replay
from onward.core.times import stamp
from onward.errors import Conflict, NotFound, OnwardError, Refused, Unreadable
from onward.ports.clock import Clock
from onward.ports.store import Listed
from onward.store import disk, lock, mounts, rundir
from onward.store.facts import Facts
from onward.store.flusher import Flusher
from onward.store.journal import Journal
from onward.store.pages import Pages
from onward.store.runlog import FileRunLog

LOCK = ".lock"
MACHINE_ID = Path("/etc/machine-id")
CONTAINERS = ("/.dockerenv", "/run/.containerenv")
HOLD = "HOLD"
READERS = 2
"""Journals that are read at once: one is folded while another waits for the disk; two cannot be folded side by side."""
_INSTANCE = re.compile("[0-9a-f]{32}")
INSTANCE = ".instance"
_BORN, _GONE = ".new-", ".gone-"


class FileStore:
    """All runs of one runs directory; made by `open_store`, which holds the lock."""

    def __init__(
        self,
        path: Path,
        fd: int,
        held: lock.RunsLock,
        instance: str,
        machine_id: str,
        clock: Clock,
        flusher: Flusher,
        secrets: KnownSecrets,
    ) -> None:
        self.path = path
        self.lock_path = path / LOCK
        self._fd = fd
        self._held = held
        self._clock = clock
        self.secrets = secrets
        self._flusher = flusher
        self._facts = Facts(fd, flusher)
        self._pages = Pages()
        self._readers = anyio.CapacityLimiter(READERS)
        self.instance = instance
        self.machine_id = machine_id
        self.runs_inode = os.fstat(fd).st_ino

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
        return await anyio.to_thread.run_sync(self._walk)

    async def create(self, started: RunStarted) -> None:
        body = self.secrets.mask_record(encode_body(started.to_json()))
        ts = stamp(self._clock.now())
        try:
            await anyio.to_thread.run_sync(self._give_birth, parse_run_id(started.run_id), body, ts)
        except OSError as error:
            raise disk.as_store_error(error, f"starting run {started.run_id}") from error

    async def open(self, run_id: str) -> FileRunLog:
        try:
            load, known = rundir.load, parse_run_id(run_id)
            loaded = await anyio.to_thread.run_sync(load, self._fd, known, limiter=self._readers)
        except OSError as error:
            raise disk.as_store_error(error, f"opening run {run_id}") from error
        replay = loaded.replay
        size = replay.end + (1 if replay.add_newline else 0)
        journal = Journal(loaded.fd, self._flusher, name=run_id, seq=replay.state.seq, size=size)
        checkpoint = (replay.checkpoint_offset, replay.checkpoint_bytes)
        return FileRunLog(self._fd, journal, replay.state, self._clock, checkpoint, self.secrets, loaded.beside)

    async def read(self, run_id: str) -> Replay:
        read, known = rundir.read, parse_run_id(run_id)
        return await anyio.to_thread.run_sync(read, self._fd, known, limiter=self._readers)

    async def read_index(self, run_id: str) -> Json | None:
        return await anyio.to_thread.run_sync(rundir.read_index, self._fd, parse_run_id(run_id))

    async def records(self, run_id: str, *, after: int, limit: int, up_to: int | None = None) -> list[Json]:
        try:
            read = self._pages.read
            return await anyio.to_thread.run_sync(read, self._fd, parse_run_id(run_id), after, limit, up_to)
        except OSError as error:
            raise Unreadable(f"the journal of {run_id} cannot be read: {error.strerror}") from error

    async def put_blob(self, run_id: str, data: bytes) -> str:
        data = self.secrets.mask(data)
        try:
            return await anyio.to_thread.run_sync(rundir.write_blob, self._fd, parse_run_id(run_id), data)
        except OSError as error:
            raise disk.as_store_error(error, f"writing a blob of {run_id}") from error

    async def call_dirs(self, run_id: str) -> list[str]:
        return await anyio.to_thread.run_sync(self._call_dirs, parse_run_id(run_id))

    def call_dir(self, run_id: str, call_id: str) -> Path:
        if not is_call_id(call_id):
            raise NotFound(f"{call_id[:40]!r} is not a call id")
        return Path(self.path, parse_run_id(run_id), rundir.CALLS, call_id)

    async def make_call_dir(self, run_id: str, call_id: str) -> Path:
        path = self.call_dir(run_id, call_id)
        try:
            await anyio.to_thread.run_sync(self._make_call_dir, run_id, call_id)
        except OSError as error:
            raise disk.as_store_error(error, f"making the directory of call {call_id} of {run_id}") from error
        return path

    async def remove_call_dir(self, run_id: str, call_id: str) -> None:
        self.call_dir(run_id, call_id)
        await anyio.to_thread.run_sync(self._remove_call_dir, run_id, call_id)

    async def set_call_dirs_aside(self, run_id: str) -> None:
        try:
            await anyio.to_thread.run_sync(self._set_aside, parse_run_id(run_id))
        except OSError as error:
            raise disk.as_store_error(error, f"setting the evidence of calls of {run_id} aside") from error

    async def renew_instance(self) -> None:
        try:
            self.instance = await anyio.to_thread.run_sync(_new_instance, self._fd)
        except OSError as error:
            raise disk.as_store_error(error, "writing a new id of the runs directory") from error

    async def hold(self) -> str | None:
        return await anyio.to_thread.run_sync(hold_in, self._fd)

    async def set_hold(self, why: str | None) -> None:
        try:
            await anyio.to_thread.run_sync(self._set_hold, why)
        except OSError as error:
            raise disk.as_store_error(error, f"writing or removing {HOLD}") from error

    async def append_fact(self, **members: Any) -> None:
        await self._facts.append(members, stamp(self._clock.now()))

    async def facts(self) -> list[Json]:
        return await self._facts.read()

    async def close(self) -> None:
        self._facts.close()
        await anyio.to_thread.run_sync(self._flusher.close)
        os.close(self._fd)
        self._held.release()

    # The rest blocks, and runs in worker threads.

    def _walk(self) -> list[Listed]:
        found: list[Listed] = []
        disk.remove_leftovers(self._fd)
        with os.scandir(self._fd) as entries:
            names = [(entry.name, entry.is_dir(follow_symlinks=False), entry.is_symlink()) for entry in entries]
        for name, is_dir, is_link in names:
            if is_dir and name.startswith((_BORN, _GONE)):
                with contextlib.suppress(OSError, OnwardError):
                    disk.remove_tree(name, dir_fd=self._fd)
            elif is_run_id(name) and is_dir:
                found.append(self._listed(name))
            elif is_run_id(name) and is_link:
                found.append(Listed(run_id=name, index=None, problem="a link stands in place of the run directory"))
        return found

    def _listed(self, name: str) -> Listed:
        try:
            size = os.stat(f"{name}/{rundir.JOURNAL}", dir_fd=self._fd, follow_symlinks=False).st_size
        except FileNotFoundError:
            return Listed(run_id=name, index=None, problem="journal.jsonl is missing")
        except OSError as error:
            return Listed(run_id=name, index=None, problem=f"journal.jsonl cannot be looked at: {error.strerror}")
        index = rundir.read_index(self._fd, name)
        believed = index is not None and index["journal"]["bytes"] == size
        questions: list[Json] | None = []
        if believed and index is not None and index.get("questions"):
            questions = rundir.read_questions(self._fd, name, index["journal"]["seq"])
            if questions is not None and len(questions) != index["questions"]:
                questions = None  # whoever wrote it, it is not the list that the index speaks of
        if not believed or questions is None:
            return Listed(run_id=name, index=None, stale_index=index)
        return Listed(run_id=name, index=index, stale_index=index, questions=tuple(questions))

    def _give_birth(self, run_id: str, body: bytes, ts: str) -> None:
        cradle = f"{_BORN}{run_id}-{secrets.token_hex(4)}"
        try:
            os.stat(run_id, dir_fd=self._fd, follow_symlinks=False)
        except FileNotFoundError:
            pass
        else:
            raise Conflict(f"run {run_id} exists already")
        try:
            disk.make_dir(cradle, "birth.make", dir_fd=self._fd)
            self._write_first_line(cradle, seal(1, 0, ts, body))
            disk.rename(cradle, run_id, "birth.rename", dir_fd=self._fd)
        except OSError:
            # Also when only the last flush failed: who is told "not started" must not find the run at the next boot.
            for name in (cradle, run_id):
                with contextlib.suppress(OSError, OnwardError):
                    disk.remove_tree(name, dir_fd=self._fd)
            raise

    def _write_first_line(self, cradle: str, line: bytes) -> None:
        with disk.opened_dir(cradle, dir_fd=self._fd) as dir_fd:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(rundir.JOURNAL, flags, disk.FILE_MODE, dir_fd=dir_fd)
            try:
                disk.write_all(fd, line, "birth.write")
                disk.flush_all(fd, "birth.flush")
            finally:
                os.close(fd)
            disk.flush_all(dir_fd, "birth.entry")

    def _set_hold(self, why: str | None) -> None:
        if why is not None:
            disk.replace_file(HOLD, f"{why}\n".encode(), "hold", dir_fd=self._fd)
            return
        with contextlib.suppress(FileNotFoundError):
            os.unlink(HOLD, dir_fd=self._fd)
        disk.flush_all(self._fd, "hold.removed")

    def _call_dirs(self, run_id: str) -> list[str]:
        with disk.opened_dir(run_id, dir_fd=self._fd) as dir_fd:
            return list(rundir.call_names(dir_fd))

    def _set_aside(self, run_id: str) -> None:
        try:
            with disk.opened_dir(run_id, rundir.CALLS, dir_fd=self._fd) as calls_fd:
                for name in filter(is_call_id, os.listdir(calls_fd)):
                    disk.rename(name, f"{name}.aside-{secrets.token_hex(4)}", "call.aside", dir_fd=calls_fd)
        except NotFound:
            return

    def _make_call_dir(self, run_id: str, call_id: str) -> None:
        with disk.opened_dir(run_id, dir_fd=self._fd) as dir_fd:
            with contextlib.suppress(FileExistsError):
                disk.make_dir(rundir.CALLS, "calls.make", dir_fd=dir_fd)
            with disk.opened_dir(rundir.CALLS, dir_fd=dir_fd) as calls_fd:
                disk.make_dir(call_id, "call.make", dir_fd=calls_fd)

    def _remove_call_dir(self, run_id: str, call_id: str) -> None:
        try:
            with disk.opened_dir(run_id, rundir.CALLS, dir_fd=self._fd) as calls_fd:
                disk.remove_tree(call_id, dir_fd=calls_fd)
        except NotFound:
            return
        except OSError as error:
            raise disk.as_store_error(error, f"removing the evidence of call {call_id} of {run_id}") from error


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

    The values in `secrets` are masked in everything that is written.

    Raises:
        Refused: Another daemon holds it, it lies on a network file system, or it is not ours.
        StoreError: It cannot be made or opened.
    """
    parts = await anyio.to_thread.run_sync(_prepare, path, holder, lock_wait_s, allow_network_fs)
    return FileStore(path, *parts, clock, Flusher(asyncio.get_running_loop()), secrets or KnownSecrets())


async def open_for_one_act(path: Path, clock: Clock, holder: lock.Holder) -> FileStore:
    """Open a runs directory while no daemon works in it; it is made neither ready nor tidy, only locked, at once.

    Raises:
        Refused: A daemon holds it.
        StoreError, NotFound: It cannot be written, or is not there.
    """
    try:
        fd = await anyio.to_thread.run_sync(disk.open_dir, str(path))
        try:
            held = await anyio.to_thread.run_sync(lock.take, str(path / LOCK), holder, 0.0)
        except BaseException:
            os.close(fd)
            raise
    except OSError as error:
        raise disk.as_store_error(error, f"the runs directory {str(path)!r} cannot be used") from error
    return FileStore(path, fd, held, "", "", clock, Flusher(asyncio.get_running_loop()), KnownSecrets())


def _prepare(
    path: Path, holder: lock.Holder, lock_wait_s: float, allow_network_fs: bool
) -> tuple[int, lock.RunsLock, str, str]:
    try:
        disk.make_dirs(os.path.abspath(path))
        kind = mounts.network_file_system(path)
        if kind and not allow_network_fs:
            raise Refused(
                f"{str(path)!r} lies on {kind}, where locks and flushes cannot be relied on; use a local disk, or set "
                "daemon.allow_network_fs = true"
            )
        found = path.stat()
        if found.st_uid != os.geteuid():
            raise Refused(f"{str(path)!r} belongs to user {found.st_uid}, not to {os.geteuid()}; it must be ours alone")
        if found.st_mode & 0o077:
            path.chmod(disk.DIR_MODE)
        with contextlib.ExitStack() as undo:  # who tries again must not find the lock held by a descriptor left over
            held = lock.take(str(path / LOCK), holder, lock_wait_s)
            undo.callback(held.release)
            fd = disk.open_dir(str(path))
            undo.callback(os.close, fd)
            parts = fd, held, _instance(fd), _machine_id()
            undo.pop_all()
        return parts
    except OSError as error:
        raise disk.as_store_error(error, f"the runs directory {str(path)!r} cannot be used") from error


def _instance(fd: int) -> str:
    try:
        text = disk.read_file(INSTANCE, dir_fd=fd, limit=4096).decode("ascii", "replace").strip()
    except NotFound:
        text = ""
    return text if _INSTANCE.fullmatch(text) else _new_instance(fd)


def _new_instance(fd: int) -> str:
    text = secrets.token_hex(16)
    disk.replace_file(INSTANCE, text.encode() + b"\n", "instance", dir_fd=fd)
    return text


def hold_in(fd: int) -> str | None:
    """Return what stands in HOLD; whatever is there under that name holds the runs. Blocks."""
    try:
        return disk.read_file(HOLD, dir_fd=fd, limit=4096).decode("utf-8", "replace").strip()
    except NotFound:
        return None
    except Unreadable as error:
        return str(error)


def _machine_id() -> str:
    """Return the id of this machine; empty in a container, which gets another one whenever it is made anew."""
    if any(os.path.exists(mark) for mark in CONTAINERS):
        return ""
    try:
        text = MACHINE_ID.read_text().strip()
    except OSError:
        return ""
    return "" if text == "uninitialized" else text
