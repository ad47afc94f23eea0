from pathlib import Path

import pytest

from tests.native.mcp.world import McpWorld


@pytest.fixture
def world(tmp_path: Path) -> McpWorld:
    return McpWorld(tmp_path)
