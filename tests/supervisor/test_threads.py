"""Blocking work finds its threads, whatever the machine has left."""

import threading
from functools import partial

import anyio
import pytest
from anyio import to_thread
from anyio._backends._asyncio import AsyncIOBackend, WorkerThread

from onward.supervisor.threads import make_threads


async def test_threads_are_made_at_the_start_and_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WorkerThread, "MAX_IDLE_TIME", 10)  # put back at the end
    await make_threads()
    # anyio looks who was idle too long whenever somebody is asked.
    later = anyio.current_time() + 3600
    monkeypatch.setattr(AsyncIOBackend, "current_time", classmethod(lambda _cls: later))

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    number = int(to_thread.current_default_thread_limiter().total_tokens)
    together = threading.Barrier(number)
    for _ in range(2):
        async with anyio.create_task_group() as tasks:
            for _ in range(number):
                tasks.start_soon(to_thread.run_sync, partial(together.wait, 30))


async def test_a_machine_without_threads_is_no_reason_not_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WorkerThread, "MAX_IDLE_TIME", 10)
    start, started = threading.Thread.start, list[threading.Thread]()

    def five(thread: threading.Thread) -> None:
        if len(started) == 5:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", five)
    monkeypatch.setattr("onward.supervisor.threads._START_S", 0.1)
    await make_threads()
    assert await to_thread.run_sync(threading.current_thread) in started
