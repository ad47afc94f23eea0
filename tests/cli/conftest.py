from collections.abc import Iterator
from pathlib import Path

import pytest

from onward.testing.fake_operations import FakeOperations
from tests.cli.serving import Cli, Daemon, serving


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path, tmp_path / "onward.sock")


@pytest.fixture
def daemon(cli: Cli) -> Iterator[Daemon]:
    with serving(cli.socket, FakeOperations()) as daemon:
        yield daemon
