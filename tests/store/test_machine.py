"""Which machine a store lies on: told apart from a clone of it, but not from a container that is made anew."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from onward.store import directory
from tests.store.worlds import store_at


@pytest.mark.parametrize("contained", [True, False])
async def test_a_container_has_no_id_that_lasts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, contained: bool
) -> None:
    mark, machine_id = tmp_path / "mark", tmp_path / "machine-id"
    machine_id.write_text("0123456789abcdef0123456789abcdef\n")
    if contained:
        mark.touch()
    monkeypatch.setattr(directory, "CONTAINERS", (str(mark),))
    monkeypatch.setattr(directory, "MACHINE_ID", machine_id)
    async with store_at(tmp_path / "runs") as store:
        assert store.machine_id == ("" if contained else "0123456789abcdef0123456789abcdef")


@pytest.mark.parametrize("harm", ["mkdir", "fifo", "link"])
async def test_whatever_is_called_hold_holds(tmp_path: Path, harm: str) -> None:
    async with store_at(tmp_path) as store:
        harms: dict[str, Callable[[], None]] = {
            "mkdir": (tmp_path / "HOLD").mkdir,
            "fifo": lambda: os.mkfifo(tmp_path / "HOLD"),
            "link": lambda: (tmp_path / "HOLD").symlink_to("nowhere"),
        }
        harms[harm]()
        assert await store.hold() is not None
