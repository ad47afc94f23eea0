"""The threads for blocking work, all made at the start: later a crowd of processes may leave none to be had.

A thread that cannot be started would look like an error of the run that needed it.
"""

import threading
from functools import partial

import anyio
import structlog
from anyio import to_thread
from anyio._backends._asyncio import WorkerThread

_START_S = 10.0

log = structlog.get_logger()


async def make_threads() -> None:
    """Start as many threads as blocking work may use at once, and let none of them end while the loop lives."""
    WorkerThread.MAX_IDLE_TIME = 1 << 31  # seconds; anyio ends those that were idle for ten
    number = int(to_thread.current_default_thread_limiter().total_tokens)
    together = threading.Barrier(number)
    try:
        async with anyio.create_task_group() as tasks:
            for _ in range(number):
                tasks.start_soon(to_thread.run_sync, partial(together.wait, _START_S))
    except* (RuntimeError, threading.BrokenBarrierError) as errors:
        together.abort()
        log.warning("not all threads could be started", error=repr(errors.exceptions[0]))
