"""Making journals durable off the event loop, in a few threads.

A flush covers what was written when it *began*; the file tells its own mark at that moment. Different files are flushed
side by side, waiters of one file share its flush.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Protocol

LAZY_S = 0.05
_THREADS = 8


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
    """Lives as long as its event loop; `close` ends the threads."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._collected: list[Flushable] = []
        self._asked: SimpleQueue[Flushable | None] = SimpleQueue()
        self._lazy: dict[Flushable, float] = {}  # when each is due, the first one first
        self._timer: asyncio.TimerHandle | None = None
        self._done: deque[tuple[float, Callable[[], None]]] = deque()
        self._telling = False
        self._threads = [Thread(target=self._run, name=f"flush-{n}", daemon=True) for n in range(_THREADS)]
        for thread in self._threads:
            thread.start()
        self.count = 0
        """Flushes so far."""
        self.took: Callable[[float], None] = lambda _seconds: None
        """Is told on the loop how long each took."""

    def ask(self, file: Flushable) -> None:
        """Flush `file` as soon as possible. On the loop; once until its `flushed` was called."""
        self._lazy.pop(file, None)
        if not self._collected:
            self._loop.call_soon(self._hand_over)
        self._collected.append(file)

    def _hand_over(self) -> None:
        """Wake threads once the loop has done what was ready: each competes with it for the interpreter."""
        for file in self._collected:
            self._asked.put(file)
        self._collected.clear()

    def ask_lazily(self, file: Flushable) -> None:
        """Flush `file` within `LAZY_S` seconds, unless somebody asks before. On the loop."""
        if file not in self._lazy:
            self._lazy[file] = self._loop.time() + LAZY_S
        if self._timer is None:
            self._timer = self._loop.call_later(LAZY_S, self._lazy_due)

    def close(self) -> None:
        """End the threads; nothing may be asked afterwards. Blocks for the flushes that run."""
        if self._timer is not None:
            self._timer.cancel()
        self._hand_over()
        for _ in self._threads:
            self._asked.put(None)
        for thread in self._threads:
            thread.join()

    def _lazy_due(self) -> None:
        self._timer = None
        now = self._loop.time()
        for file, due in list(self._lazy.items()):
            if due > now:
                self._timer = self._loop.call_at(due, self._lazy_due)
                return
            del self._lazy[file]
            file.flush_soon()

    def _run(self) -> None:
        while (file := self._asked.get()) is not None:
            began = time.monotonic()
            told = _flush(file)
            self._done.append((time.monotonic() - began, told))
            # One call tells of all flushes that ended by then. It clears the mark before it looks, so none is missed.
            if not self._telling and not self._loop.is_closed():
                self._telling = True
                self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        self._telling = False
        while self._done:
            self.count += 1
            seconds, told = self._done.popleft()
            self.took(seconds)
            told()


def _flush(file: Flushable) -> Callable[[], None]:
    mark = file.mark()
    error: OSError | None = None
    try:
        file.sync()
    except OSError as failed:
        error = failed
    return lambda: file.flushed(mark, error)
