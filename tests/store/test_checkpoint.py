"""Checkpoints: written as the journal grows, read instead of what stands before them, trusted only when whole."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from onward.core.index import index_of
from onward.store import runlog
from tests.store.worlds import RUN, fault, journal_of, records_in, said, started, store_at, turn

META = Path(RUN) / "meta.json"


@pytest.fixture(autouse=True)
def small_journals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runlog, "CHECKPOINT_BYTES", 2000)


async def grown(runs: Path, messages: int = 40, *, faults: str = "") -> dict[str, Any]:
    """Make a run with that many messages of 200 bytes and a turn; returns its state."""
    async with store_at(runs) as store:
        await store.create(started())
        log = await store.open(RUN)
        with fault(faults):
            for number in range(messages):
                await log.append(said(number, "y" * 200))
                await log.flush()
        await log.append(turn(1))
        await log.write_index(index_of(log.state))
        await log.close()
        state: dict[str, Any] = log.state.to_json()
        return state


def checkpoints(runs: Path) -> list[int]:
    return [record["seq"] for record in records_in(journal_of(runs)) if record["type"] == "Checkpoint"]


def test_checkpoints_get_rarer_as_the_state_grows() -> None:
    """Each after at least four times the size of the last one, so that all together stay a fraction of the journal."""
    assert [runlog.checkpoint_due(grown, 0) for grown in (1999, 2000)] == [False, True]
    assert [runlog.checkpoint_due(grown, 5000) for grown in (2000, 19_999, 20_000)] == [False, False, True]


async def test_a_checkpoint_is_written_when_the_journal_has_grown(tmp_path: Path) -> None:
    await grown(tmp_path)
    assert len(checkpoints(tmp_path)) == 2


async def test_reading_from_a_checkpoint_gives_the_state_that_reading_from_the_start_gives(tmp_path: Path) -> None:
    live = await grown(tmp_path)
    async with store_at(tmp_path) as store:
        quick = await store.read(RUN)
        (tmp_path / META).unlink()
        whole = await store.read(RUN)
    assert quick.state.to_json() == whole.state.to_json() == live
    assert (quick.end, quick.checkpoint_offset) == (whole.end, whole.checkpoint_offset)


async def test_what_stands_before_the_checkpoint_is_not_read(tmp_path: Path) -> None:
    live = await grown(tmp_path)
    data = journal_of(tmp_path).read_bytes()
    first = data.index(b"\n") + 1
    journal_of(tmp_path).write_bytes(b"?" * (first - 1) + b"\n" + data[first:])
    async with store_at(tmp_path) as store:
        assert (await store.read(RUN)).state.to_json() == live


OFFSETS: list[object] = [0, -1, 1, 100, 10**7, 2**63, 2**64 - 1, None, "300", 3.5, True, []]


@pytest.mark.parametrize("offset", OFFSETS, ids=map(str, OFFSETS))
async def test_an_offset_that_names_no_checkpoint_is_ignored(tmp_path: Path, offset: object) -> None:
    live = await grown(tmp_path)
    index = orjson.loads((tmp_path / META).read_bytes())
    index["journal"]["checkpoint_offset"] = offset
    (tmp_path / META).write_bytes(orjson.dumps(index))
    async with store_at(tmp_path) as store:
        assert (await store.read(RUN)).state.to_json() == live


async def test_the_offset_of_another_line_is_ignored(tmp_path: Path) -> None:
    live = await grown(tmp_path)
    index = orjson.loads((tmp_path / META).read_bytes())
    index["journal"]["checkpoint_offset"] = journal_of(tmp_path).read_bytes().index(b"\n") + 1
    (tmp_path / META).write_bytes(orjson.dumps(index))
    async with store_at(tmp_path) as store:
        assert (await store.read(RUN)).state.to_json() == live


async def test_a_checkpoint_whose_blob_is_damaged_is_not_used(tmp_path: Path) -> None:
    live = await grown(tmp_path)
    for blob in (tmp_path / RUN / "blobs").iterdir():
        blob.write_bytes(b"{}")
    async with store_at(tmp_path) as store:
        state = (await store.read(RUN)).state
    assert (state.seq, state.turns) == (live["seq"], live["turns"])
    lost = [told for seq in checkpoints(tmp_path) for told in ("its blob", f"records {seq} to {seq} are missing")]
    assert len(lost) == 4
    assert [place.what.partition(" '")[0] for place in state.damage] == lost


@pytest.mark.parametrize("step", ["blob.write.before=enospc*", "blob.rename.before=eio*", "blobs.make.before=eio*"])
async def test_a_checkpoint_that_fails_fails_no_append_and_writes_nothing_twice(tmp_path: Path, step: str) -> None:
    """The records that were appended before it stand; the next append tries again."""
    live = await grown(tmp_path, faults=step)
    records = records_in(journal_of(tmp_path))
    assert [record["message_id"] for record in records if record["type"] == "MessageAdded"] == [
        f"m{number}" for number in range(40)
    ]
    assert len(checkpoints(tmp_path)) == 1
    async with store_at(tmp_path) as store:
        assert (await store.read(RUN)).state.to_json() == live


async def test_a_run_that_was_opened_again_goes_on_counting_from_its_last_checkpoint(tmp_path: Path) -> None:
    await grown(tmp_path)
    before = checkpoints(tmp_path)
    async with store_at(tmp_path) as store:
        log = await store.open(RUN)
        await log.append(said(100))
        await log.close()
    assert checkpoints(tmp_path) == before
