"""Making journals durable off the event loop: one thread, and a small pool when several journals wait at once.

A flush covers what was written when it *began*; the file tells its own mark at that moment. Different files are flushed
side by side, waiters of one file share its flush.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

LAZY_S = 0.05
_POOL = 8


class Flushable(Protocol):
    """A file whose written bytes are to become durable. Called on the loop, but for `sync`."""

    def mark(self) -> int:
        """Return how much is written (read by the flusher's thread, so it must be one plain attribute)."""
        ...

    def sync(self) -> None:
        """Fdatasync; runs in the flusher's threads and touches nothing else."""
        ...

    def flushed(self, mark: int, error: OSError | None) -> None:
        """Everything up to `mark` is durable, or the flush failed."""
        ...

    def flush_soon(self) -> None:
        """Ask for a flush if something written is not durable yet."""
        ...


class Flusher:
    """Lives as long as its event loop; `close` ends the thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._wake = threading.Condition()
        self._asked: dict[Flushable, None] = {}
        self._closing = False
        self._lazy: dict[Flushable, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._pool = ThreadPoolExecutor(_POOL, thread_name_prefix="flush")
        self._thread = threading.Thread(target=self._run, name="flusher", daemon=True)
        self._thread.start()
        self.count = 0
        """Flushes so far."""

    def ask(self, file: Flushable) -> None:
        """Flush `file` as soon as possible. On the loop; once until its `flushed` was called."""
        with self._wake:
            self._asked[file] = None
            self._wake.notify()

    def ask_lazily(self, file: Flushable) -> None:
        """Flush `file` within `LAZY_S` seconds, unless somebody asks before. On the loop."""
        self._lazy[file] = None
        if self._timer is None:
            self._timer = self._loop.call_later(LAZY_S, self._lazy_due)

    def close(self) -> None:
        """End the thread; nothing may be asked afterwards. Blocks for the flush that runs."""
        if self._timer is not None:
            self._timer.cancel()
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join()
        self._pool.shutdown()

    def _lazy_due(self) -> None:
        self._timer = None
        due, self._lazy = self._lazy, {}
        for file in due:
            file.flush_soon()

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._asked and not self._closing:
                    self._wake.wait()
                if not self._asked:
                    return
                files, self._asked = list(self._asked), {}
            if len(files) == 1:
                done = [_flush(files[0])]
            else:
                done = list(self._pool.map(_flush, files))
            self.count += len(done)
            self._tell(done)

    def _tell(self, done: "list[Callable[[], None]]") -> None:
        def tell() -> None:
            for told in done:
                told()

        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(tell)


def _flush(file: Flushable) -> Callable[[], None]:
    mark = file.mark()
    error: OSError | None = None
    try:
        file.sync()
    except OSError as failed:
        error = failed
    return lambda: file.flushed(mark, error)
