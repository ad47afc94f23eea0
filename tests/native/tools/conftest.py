from pathlib import Path

import pytest

from tests.native.tools.world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)
