from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from onward.testing.fake_operations import FakeOperations
from tests.api.serving import Served, serving


@pytest.fixture
def operations() -> FakeOperations:
    return FakeOperations()


@pytest.fixture
async def served(tmp_path: Path, operations: FakeOperations) -> AsyncIterator[Served]:
    async with serving(tmp_path / "s" / "onward.sock", operations) as served:
        yield served
