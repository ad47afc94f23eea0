"""daemon.jsonl: facts of the daemon that must last, in the line format of the journals.

It is kept small: above `COMPACT_BYTES` it is replaced by one that holds only what still means something.
"""

import os
from contextlib import suppress
from typing import Any

import anyio
import anyio.to_thread

from onward.core.daemon_facts import kept_facts
from onward.core.line import BadLine, decode, encode_body, seal
from onward.core.outbox import kept_notifications
from onward.core.records import Json
from onward.errors import DiskFull, NotFound, StoreError, Unreadable
from onward.store import disk
from onward.store.flusher import Flusher
from onward.store.journal import Journal

FACTS = "daemon.jsonl"
COMPACT_BYTES = 1 << 20
_SEALED = ("seq", "dur", "ts", "hand")


class Facts:
    """The file is opened, and its tail mended, at the first append."""

    def __init__(self, runs_fd: int, flusher: Flusher) -> None:
        self._runs_fd = runs_fd
        self._flusher = flusher
        self._journal: Journal | None = None
        self._lock = anyio.Lock()
        self._limit = COMPACT_BYTES

    async def append(self, members: dict[str, Any], ts: str) -> None:
        """Append one fact, durably.

        Raises:
            StoreError: The disk did not take it.
        """
        async with self._lock:
            try:
                if self._journal is not None and self._journal.size > self._limit:
                    self.close()
                if self._journal is None:
                    self._journal = await anyio.to_thread.run_sync(self._open, ts)
                self._journal.append([encode_body(members)], ts)
                await self._journal.flush()
            except OSError as error:
                raise disk.as_store_error(error, f"opening {FACTS}") from error
            except DiskFull:
                raise
            except StoreError:
                self.close()  # dead: the next fact opens it again
                raise

    async def read(self) -> list[Json]:
        """Return all facts, damaged lines left out.

        Raises:
            Unreadable: As it says.
        """
        try:
            return await anyio.to_thread.run_sync(read_facts, self._runs_fd)
        except OSError as error:
            raise Unreadable(f"{FACTS} cannot be read: {error.strerror}") from error

    def close(self) -> None:
        """Let go of the file. Idempotent."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    def _open(self, now: str) -> Journal:
        self._compact(now)
        fd = disk.open_regular(FACTS, os.O_RDWR | os.O_APPEND | os.O_CREAT, dir_fd=self._runs_fd)
        try:
            seq, end = _mend(fd)
            disk.flush_data(fd, "facts.mend")
            disk.flush_all(self._runs_fd, "facts.entry")
        except BaseException:
            os.close(fd)
            raise
        return Journal(fd, self._flusher, name="the daemon", seq=seq, size=end, point="facts")

    def _compact(self, now: str) -> None:
        """Replace a file that has grown, durably; where that fails, the one that is there goes on growing."""
        try:
            size = os.stat(FACTS, dir_fd=self._runs_fd, follow_symlinks=False).st_size
            if size <= self._limit:
                return
            kept = kept_notifications(kept_facts(read_facts(self._runs_fd), now))
            data = b"".join(_line(seq, fact) for seq, fact in enumerate(kept, 1))
            disk.replace_file(FACTS, data, "facts.compact", dir_fd=self._runs_fd)
        except (OSError, StoreError, NotFound):
            return
        self._limit = max(COMPACT_BYTES, 2 * len(data))


def read_facts(runs_fd: int) -> list[Json]:
    """Return all facts of a runs directory, damaged lines left out. Blocks.

    Raises:
        Unreadable, OSError: They cannot be read.
    """
    try:
        fd = disk.open_regular(FACTS, dir_fd=runs_fd)
    except NotFound:
        return []
    facts: list[Json] = []
    try:
        for line in disk.read_lines(fd):
            with suppress(BadLine):
                facts.append(decode(line.rstrip(b"\n")))
    finally:
        os.close(fd)
    return facts


def _line(seq: int, fact: Json) -> bytes:
    members = {name: value for name, value in fact.items() if name not in _SEALED}
    return seal(seq, 0, str(fact.get("ts", "")), encode_body(members))


def _mend(fd: int) -> tuple[int, int]:
    """Cut a torn last line off, or end a whole one; returns the highest seq and the size."""
    seq, end, whole = 0, 0, True
    for line in disk.read_lines(fd):
        whole = line.endswith(b"\n")
        try:
            seq = max(seq, decode(line.rstrip(b"\n"))["seq"])
        except BadLine:
            if not whole:
                os.ftruncate(fd, end)
                return seq, end
        end += len(line)
    if not whole:
        disk.write_all(fd, b"\n", "facts.newline")
        end += 1
    return seq, end
