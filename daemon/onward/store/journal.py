"""An append-only file of sealed lines: one write per group of records, one flush for all who wait.

Appends are serial (they happen on the event loop, without an await between encoding and writing). A write that fails
or is cut short is undone. A failed fdatasync is not simply repeated, for the kernel may have dropped the pages: the
file is cut to its last durable offset, the bytes are written again and flushed once; if that fails the journal is dead.
"""

import asyncio
import os
from collections.abc import Callable, Sequence

from onward.core.line import seal
from onward.errors import StoreError
from onward.store import disk
from onward.store.flusher import Flusher


class Journal:
    """One open journal. All methods but `sync` and `mark` belong to the event loop."""

    def __init__(self, fd: int, flusher: Flusher, *, name: str, seq: int, size: int, point: str = "journal") -> None:
        """Take over `fd`, whose `size` bytes and `seq` records are durable already."""
        self.fd = fd
        self.name = name
        self.seq = self.durable_seq = seq
        self.size = self.durable_size = size
        self.on_durable: Callable[[int], None] | None = None
        self._flusher = flusher
        self._point = point
        self._seqs: list[tuple[int, int]] = []  # (size, seq) after each append that is not durable
        self._unflushed: list[bytes] = []
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._asked = False
        self._rewritten = False
        self._closing = False
        self._dead: StoreError | None = None

    def append(self, bodies: Sequence[bytes], ts: str) -> tuple[int, int]:
        """Write records (encoded JSON objects) as one piece; returns the seq and the offset of the first of them.

        Raises:
            StoreError: Nothing was written (DiskFull: it may be tried again).
        """
        if self._dead is not None:
            raise self._dead
        dur, first = self.durable_seq, self.seq + 1
        data = b"".join([seal(seq, dur, ts, body) for seq, body in enumerate(bodies, first)])
        self._write(data)
        offset = self.size
        self.size += len(data)
        self.seq += len(bodies)
        self._seqs.append((self.size, self.seq))
        self._unflushed.append(data)
        self._flusher.ask_lazily(self)
        return first, offset

    async def flush(self) -> None:
        """Wait until everything appended so far is durable.

        Raises:
            StoreError: It is not, and the journal is dead.
        """
        if self._dead is not None:
            raise self._dead
        if self.durable_size == self.size:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((self.size, done))
        self._ask()
        await done

    def mark(self) -> int:
        return self.size

    def sync(self) -> None:
        disk.flush_data(self.fd, f"{self._point}.flush")

    def flush_soon(self) -> None:
        if self._dead is None and self.durable_size < self.size:
            self._ask()

    def flushed(self, mark: int, error: OSError | None) -> None:
        self._asked = False
        if self._dead is not None:
            self._close_when_idle()
            return
        if error is not None:
            self._flush_failed(error)
            return
        self._rewritten = False
        while self._seqs and self._seqs[0][0] <= mark:
            self.durable_size, self.durable_seq = self._seqs.pop(0)
            self._unflushed.pop(0)
        released, self._waiters = (
            [done for size, done in self._waiters if size <= mark],
            [(size, done) for size, done in self._waiters if size > mark],
        )
        for done in released:
            if not done.done():
                done.set_result(None)
        if self._waiters:
            self._ask()
        elif self.durable_size < self.size:
            self._flusher.ask_lazily(self)  # written while this flush ran, when asking again had no effect
        if self.on_durable is not None:
            self.on_durable(self.durable_seq)

    def close(self) -> None:
        """Close the file (once the flush that runs has ended); whoever still waits is told. Call `flush` before."""
        self._die(StoreError(f"the journal of {self.name} is closed"))
        self._closing = True
        self._close_when_idle()

    def _close_when_idle(self) -> None:
        if self._closing and not self._asked and self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _ask(self) -> None:
        """One flush at a time: what a second one says about bytes that are written again meanwhile would be wrong."""
        if not self._asked:
            self._asked = True
            self._flusher.ask(self)

    def _write(self, data: bytes) -> None:
        try:
            disk.write_all(self.fd, data, f"{self._point}.write")
        except OSError as error:
            try:
                os.ftruncate(self.fd, self.size)
            except OSError as worse:
                self._die(disk.as_store_error(worse, f"undoing a failed write to the journal of {self.name}"))
            raise disk.as_store_error(error, f"writing to the journal of {self.name}") from error

    def _flush_failed(self, error: OSError) -> None:
        problem = disk.as_store_error(error, f"flushing the journal of {self.name}")
        if self._rewritten:
            self._die(problem)
            return
        self._rewritten = True
        try:
            os.ftruncate(self.fd, self.durable_size)
            disk.write_all(self.fd, b"".join(self._unflushed), f"{self._point}.rewrite")
        except OSError:
            self._die(problem)
            return
        self._ask()

    def _die(self, problem: StoreError) -> None:
        if self._dead is None:
            # Never DiskFull, which promises that the same may be tried again here.
            self._dead = StoreError(str(problem))
        waiters, self._waiters = self._waiters, []
        for _, done in waiters:
            if not done.done():
                done.set_exception(StoreError(str(problem)))
