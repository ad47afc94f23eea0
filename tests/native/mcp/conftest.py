from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.native.mcp.homes import McpHome
from tests.native.mcp.world import McpWorld


@pytest.fixture
def world(tmp_path: Path) -> McpWorld:
    return McpWorld(tmp_path)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[McpHome]:
    (tmp_path / "home").mkdir(mode=0o700)
    home = McpHome(tmp_path / "home")
    try:
        yield home
    finally:
        home.close()
