"""A home for each test; whatever lives there ends with it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.harness import Home


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    tmp_path.chmod(0o700)
    home = Home(tmp_path)
    yield home
    home.close()
