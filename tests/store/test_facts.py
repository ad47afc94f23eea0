"""daemon.jsonl: facts of the daemon survive it, and its tail is mended before the next one."""

from pathlib import Path
from typing import Any

import pytest

from onward.errors import DiskFull, StoreError
from onward.store import facts
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


async def test_a_file_that_has_grown_is_replaced_by_what_still_means_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "COMPACT_BYTES", 20_000)
    async with store_at(tmp_path) as store:
        for number in range(300):
            await store.append_fact(type="RunEntering", run_id=f"r{number}")
            await store.append_fact(type="RunEntered", run_id=f"r{number}")
        await store.append_fact(type="RunSuspended", run_id="bad", reason="it kills")
    assert (tmp_path / "daemon.jsonl").stat().st_size < 25_000
    assert list(tmp_path.glob(".daemon.jsonl*")) == []
    async with store_at(tmp_path) as store:
        assert (await store.facts())[-1]["run_id"] == "bad"
    seqs = [record["seq"] for record in records_in(tmp_path / "daemon.jsonl")]
    assert seqs == list(range(1, len(seqs) + 1))


@pytest.mark.parametrize("step", ["write.before=short", "flush.before=eio", "rename.before=enospc"])
async def test_a_file_that_cannot_be_replaced_goes_on_growing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    await noted(tmp_path, *range(200))
    monkeypatch.setattr(facts, "COMPACT_BYTES", 1000)
    with fault(f"facts.compact.{step}"):
        assert (await noted(tmp_path, 200))[-1] == 200
    assert len(await noted(tmp_path)) == 201
