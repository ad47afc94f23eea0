"""daemon.jsonl: facts of the daemon that must last, in the line format of the journals."""

import os
from contextlib import suppress
from typing import Any

import anyio
import anyio.to_thread

from onward.core.line import BadLine, decode, encode_body
from onward.core.records import Json
from onward.errors import DiskFull, NotFound, StoreError, Unreadable
from onward.store import disk
from onward.store.flusher import Flusher
from onward.store.journal import Journal

FACTS = "daemon.jsonl"


class Facts:
    """The file is opened, and its tail mended, at the first append."""

    def __init__(self, runs_fd: int, flusher: Flusher) -> None:
        self._runs_fd = runs_fd
        self._flusher = flusher
        self._journal: Journal | None = None
        self._lock = anyio.Lock()

    async def append(self, members: dict[str, Any], ts: str) -> None:
        """Append one fact, durably.

        Raises:
            StoreError: The disk did not take it.
        """
        async with self._lock:
            try:
                if self._journal is None:
                    self._journal = await anyio.to_thread.run_sync(self._open)
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
            return await anyio.to_thread.run_sync(self._read)
        except OSError as error:
            raise Unreadable(f"{FACTS} cannot be read: {error.strerror}") from error

    def close(self) -> None:
        """Let go of the file. Idempotent."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    def _open(self) -> Journal:
        fd = disk.open_regular(FACTS, os.O_RDWR | os.O_APPEND | os.O_CREAT, dir_fd=self._runs_fd)
        try:
            seq, end = _mend(fd)
            disk.flush_data(fd, "facts.mend")
            disk.flush_all(self._runs_fd, "facts.entry")
        except BaseException:
            os.close(fd)
            raise
        return Journal(fd, self._flusher, name="the daemon", seq=seq, size=end, point="facts")

    def _read(self) -> list[Json]:
        try:
            fd = disk.open_regular(FACTS, dir_fd=self._runs_fd)
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
