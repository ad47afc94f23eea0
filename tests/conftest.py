"""What every test gets: asyncio for async tests, a failure when they block the event loop, sampling of slow tests."""

import _thread
import ctypes
import os
import random
import threading
from collections.abc import Iterator

import blockbuster.blockbuster as detector
import forbiddenfruit
import hypothesis
import pytest
from blockbuster import BlockBuster, BlockBusterFunction, BlockingError

JOURNAL = "onward/store/journal.py"

# How long an example takes is the load of the machine.
hypothesis.settings.register_profile("onward", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("onward")

# Locks of the standard library that are held for a few instructions only, to hand work to a thread and back.
BRIEFLY_HELD = {
    "/queue.py": {"put", "put_nowait", "get_nowait"},
    "/threading.py": {"start", "set", "__enter__"},
    "/concurrent/futures/thread.py": {"submit"},
    "/concurrent/futures/_base.py": {"add_done_callback", "cancel", "done", "set_result", "set_exception"},
}


@pytest.fixture
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of Onward in the environment."""
    for name in [name for name in os.environ if name.startswith("ONWARD_")]:
        monkeypatch.delenv(name)


class EveryFunction(frozenset[str]):
    """Blockbuster's allow list names functions of a file; this names all of them."""

    def __contains__(self, name: object) -> bool:
        return True


class _LockSlots(type):
    """Setting an attribute here sets it on the interpreter's lock type, whose own `setattr` refuses."""

    def __setattr__(cls, name: str, value: object) -> None:
        forbiddenfruit.patchable_builtin(_thread.LockType)[name] = value
        ctypes.pythonapi.PyType_Modified(ctypes.py_object(_thread.LockType))


class LockSlots(metaclass=_LockSlots):
    __enter__ = _thread.LockType.__enter__


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def loop_is_not_blocked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail an async test in which code of Onward blocked the event loop. Tests themselves may read and write files."""
    if "anyio_backend" not in request.fixturenames:
        yield
        return
    blocked: list[str] = []

    class RecordedError(BlockingError):
        # Recorded, because the code under test may catch it as it catches any failure of a run.
        def __init__(self, func: str) -> None:
            blocked.append(func)
            super().__init__(func)

    monkeypatch.setattr(detector, "BlockingError", RecordedError)
    blockers = loop_blockers()
    blockers.activate()
    try:
        yield
    finally:
        blockers.deactivate()
    if blocked:
        pytest.fail(f"the event loop was blocked by {', '.join(blocked)}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep `ONWARD_SWEEP_SAMPLE` cases of each slow test, the same ones for the same `ONWARD_SWEEP_SEED`."""
    size, seed = int(os.environ.get("ONWARD_SWEEP_SAMPLE", "0")), os.environ.get("ONWARD_SWEEP_SEED", "0")
    if not size:
        return
    cases: dict[str, list[str]] = {}
    for item in items:
        if item.get_closest_marker("slow"):
            cases.setdefault(_function(item), []).append(item.nodeid)
    left_out: set[str] = set()
    for function, ids in cases.items():
        # Sorted and seeded by name, so that every xdist worker chooses alike, in whatever order it collected.
        kept = random.Random(f"{seed} {function}").sample(sorted(ids), min(size, len(ids)))
        left_out |= set(ids) - set(kept)
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left_out])
    items[:] = [item for item in items if item.nodeid not in left_out]


def _function(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def loop_blockers() -> BlockBuster:
    """Everything that may not be called on the loop: blockbuster's own list, flushes, opening files and held locks."""
    blockers = BlockBuster("onward")
    for name in ("fsync", "fdatasync", "open"):
        blockers.functions[f"os.{name}"] = BlockBusterFunction(None, f"os.{name}", scanned_modules="onward")
    # subprocess opens /dev/null, which is no disk.
    blockers.functions["os.open"].can_block_in("/subprocess.py", {"_get_devnull"})
    # Blockbuster watches `lock.acquire()`; `with lock:` is another slot. A free lock does not block.
    blockers.functions["threading.Lock.__enter__"] = BlockBusterFunction(
        LockSlots, "__enter__", scanned_modules="onward", can_block_predicate=_is_free
    )
    for name in ("threading.Lock.acquire", "threading.Lock.__enter__"):
        for file, functions in BRIEFLY_HELD.items():
            blockers.functions[name].can_block_in(file, functions)
    # The one exception: an append goes to the page cache, and order matters more than the microseconds.
    blockers.functions["os.write"].can_block_in(JOURNAL, EveryFunction())
    return blockers


def _is_free(lock: threading.Lock) -> bool:
    return not lock.locked()
