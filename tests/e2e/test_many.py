"""Very many runs at once under few descriptors."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.e2e.instances import Instance, shell


@contextmanager
def descriptors(pid: int) -> Iterator[list[int]]:
    """Count the descriptors of a process until the block ends."""
    counts: list[int] = []
    over = threading.Event()

    def count() -> None:
        while not over.wait(0.05):
            try:
                counts.append(len(os.listdir(f"/proc/{pid}/fd")))
            except OSError:
                return

    counting = threading.Thread(target=count)
    counting.start()
    yield counts
    over.set()
    counting.join()


def all_end(instance: Instance, number: int) -> None:
    instance.start()
    model = instance.script(shell("true"), {"text": "done"})
    idle = len(os.listdir(f"/proc/{instance.pid}/fd"))
    with descriptors(instance.pid) as counts:
        for _ in range(number):
            assert instance.ask_for(model).status == 201
        instance.until(lambda: instance.get("/v1/daemon").body["runs"] == {"completed": number}, 240)
        instance.until(lambda: len(os.listdir(f"/proc/{instance.pid}/fd")) <= idle + 10)
    assert max(counts) < 250
    assert "Too many open files" not in instance.log.read_text()
    assert all(run["result"] == "done" for run in instance.listed().values())


@pytest.mark.slow
def test_500_runs_at_once_need_few_descriptors_and_give_all_of_them_back(make: Callable[..., Instance]) -> None:
    all_end(make(files=256), 500)


def test_60_runs_at_once_need_few_descriptors_and_give_all_of_them_back(make: Callable[..., Instance]) -> None:
    """As many as may work at once, and some more."""
    all_end(make(files=256), 60)
