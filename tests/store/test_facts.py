"""daemon.jsonl: facts of the daemon survive it, and its tail is mended before the next one."""

from pathlib import Path
from typing import Any

import pytest

from onward.errors import DiskFull, StoreError
from tests.store.worlds import fault, records_in, store_at


async def noted(runs: Path, *numbers: int) -> list[Any]:
    """Append facts as one daemon; returns what the next one reads."""
    async with store_at(runs) as store:
        for number in numbers:
            await store.append_fact(type="Noted", number=number)
    async with store_at(runs) as store:
        return [fact["number"] for fact in await store.facts()]


async def test_facts_survive_the_daemon(tmp_path: Path) -> None:
    assert await noted(tmp_path) == []
    assert await noted(tmp_path, 1, 2) == [1, 2]
    assert await noted(tmp_path, 3) == [1, 2, 3]
    assert [record["seq"] for record in records_in(tmp_path / "daemon.jsonl")] == [1, 2, 3]


@pytest.mark.parametrize("torn", [b'{"crc":"', b"\x00" * 100, b"half", "é".encode()[:1]])
async def test_a_torn_tail_is_cut_off_before_the_next_fact(tmp_path: Path, torn: bytes) -> None:
    await noted(tmp_path, 1, 2)
    with (tmp_path / "daemon.jsonl").open("ab") as file:
        file.write(torn)
    assert await noted(tmp_path, 3) == [1, 2, 3]
    assert [record["seq"] for record in records_in(tmp_path / "daemon.jsonl")] == [1, 2, 3]


async def test_a_whole_fact_without_its_newline_is_kept_and_gets_it(tmp_path: Path) -> None:
    await noted(tmp_path, 1, 2)
    file = tmp_path / "daemon.jsonl"
    file.write_bytes(file.read_bytes()[:-1])
    assert await noted(tmp_path, 3) == [1, 2, 3]
    assert [record["seq"] for record in records_in(file)] == [1, 2, 3]


async def test_a_damaged_line_costs_only_itself(tmp_path: Path) -> None:
    await noted(tmp_path, 1, 2, 3)
    file = tmp_path / "daemon.jsonl"
    first, _, third, _ = file.read_bytes().split(b"\n")
    file.write_bytes(b"\n".join([first, b"\x00" * 50, third, b""]))
    assert await noted(tmp_path, 4) == [1, 3, 4]


async def test_a_fact_that_the_disk_does_not_take_is_undone_and_can_be_noted_again(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        await store.append_fact(type="Noted", number=1)
        with fault("facts.write.before=short"), pytest.raises(DiskFull):
            await store.append_fact(type="Noted", number=2)
        with fault("facts.flush.before=eio*"), pytest.raises(StoreError):
            await store.append_fact(type="Noted", number=3)
        await store.append_fact(type="Noted", number=4)
    assert (await noted(tmp_path))[-1] == 4
    assert 2 not in await noted(tmp_path)
