from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.instances import Instance


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Instance]]:
    """Makes instances that are ended with the test."""
    made: list[Instance] = []

    def one(name: str = "i", **members: Any) -> Instance:
        made.append(Instance(tmp_path / name, **members))
        return made[-1]

    yield one
    for instance in made:
        instance.end()


@pytest.fixture
def instance(make: Callable[..., Instance]) -> Instance:
    return make()
