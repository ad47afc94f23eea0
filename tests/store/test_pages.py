"""Reading records page by page: complete, in file order, bounded, and without reading again what was read."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest
from anyio import to_thread

from onward.core.line import encode_body, seal
from onward.store import disk, pages
from onward.store.filestore import FileStore
from tests.store.worlds import RUN, TS, journal_of, said, started, store_at


def note(seq: int, dur: int | None = None, text: str = "x") -> bytes:
    return seal(seq, seq - 1 if dur is None else dur, TS, encode_body({"type": "Note", "text": text}))


def extend(runs: Path, *lines: bytes) -> None:
    with journal_of(runs).open("ab") as journal:
        for line in lines:
            journal.write(line)


async def seqs(store: FileStore, *, after: int = 0, limit: int = 100, up_to: int | None = None) -> list[int]:
    return [record["seq"] for record in await store.records(RUN, after=after, limit=limit, up_to=up_to)]


async def all_pages(store: FileStore, limit: int) -> list[int]:
    found: list[int] = []
    while page := await seqs(store, after=found[-1] if found else 0, limit=limit):
        found += page
    return found


@pytest.fixture
def bytes_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes of journals each reading went through."""
    counts: list[int] = []
    read_lines = disk.read_lines

    def counted(fd: int, offset: int = 0) -> Iterator[bytes]:
        counts.append(0)
        for line in read_lines(fd, offset):
            counts[-1] += len(line)
            yield line

    monkeypatch.setattr(disk, "read_lines", counted)
    return counts


async def test_pages_of_any_size_give_every_record_once_in_order(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        await store.create(started())
        extend(tmp_path, *[note(seq) for seq in range(2, 51)])
        for limit in (1, 7, 50, 100):
            assert await all_pages(store, limit) == list(range(1, 51))
        assert await seqs(store, after=10, limit=3) == [11, 12, 13]
        assert await seqs(store, after=10, up_to=12) == [11, 12]
        assert await seqs(store, after=50) == []


async def test_a_page_begins_where_the_last_one_ended(tmp_path: Path, bytes_read: list[int]) -> None:
    async with store_at(tmp_path) as store:
        await store.create(started())
        extend(tmp_path, *[note(seq, text="x" * 1000) for seq in range(2, 102)])
        assert await all_pages(store, 10) == list(range(1, 102))
    assert max(bytes_read) < 12_000
    assert sum(bytes_read) < 1.2 * journal_of(tmp_path).stat().st_size


async def test_a_follower_reads_only_what_is_new(tmp_path: Path, bytes_read: list[int]) -> None:
    async with store_at(tmp_path) as store:
        await store.create(started())
        extend(tmp_path, *[note(seq, text="x" * 1000) for seq in range(2, 102)])
        assert await seqs(store, after=101) == []
        del bytes_read[:]
        for seq in range(102, 112):
            extend(tmp_path, note(seq))
            assert await seqs(store, after=seq - 1) == [seq]
    assert max(bytes_read) < 200


async def test_readers_at_different_places_do_not_disturb_each_other(tmp_path: Path, bytes_read: list[int]) -> None:
    async with store_at(tmp_path) as store:
        await store.create(started())
        extend(tmp_path, *[note(seq, text="x" * 1000) for seq in range(2, 102)])
        places = [20, 60, 85]
        for _ in range(3):
            for reader, place in enumerate(places):
                assert await seqs(store, after=place, limit=5) == list(range(place + 1, place + 6))
                places[reader] += 5
    assert max(bytes_read[3:]) < 7000


async def test_a_page_is_bounded_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds one record at least, however large."""
    monkeypatch.setattr(pages, "PAGE_BYTES", 3000)
    async with store_at(tmp_path) as store:
        await store.create(started())
        extend(tmp_path, *[note(seq, text="x" * 1000) for seq in range(2, 12)], note(12, text="x" * 9000), note(13))
        assert len(await seqs(store, after=1)) == 3
        assert await seqs(store, after=11) == [12]
        assert await all_pages(store, 100) == list(range(1, 14))


async def test_what_is_written_but_not_durable_is_not_shown(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        await store.create(started())
        log = await store.open(RUN)
        await log.append(said(1))
        await log.flush()
        durable = log.durable_seq
        await log.append(said(2))
        assert await seqs(store, up_to=durable) == [1, 2]
        await log.flush()
        assert await seqs(store, after=2, up_to=log.durable_seq) == [3]
        await log.close()


async def test_a_torn_tail_is_not_shown_for_it_will_be_cut_off(tmp_path: Path) -> None:
    """Its seqs come again, for other records: whoever follows would miss those."""
    async with store_at(tmp_path) as store:
        await store.create(started())
        extend(tmp_path, note(2), note(3, dur=2), b"torn\n", note(5, dur=2), note(6, dur=3))
        assert await seqs(store) == [1, 2, 3]
        assert await seqs(store, after=3) == []
        log = await store.open(RUN)
        await log.append(said(1), said(2), said(3))
        await log.flush()
        assert await seqs(store, after=3, up_to=log.durable_seq) == [4, 5, 6]
        assert [record["type"] for record in await store.records(RUN, after=3, limit=9)] == ["MessageAdded"] * 3
        await log.close()


async def test_what_stands_behind_a_gap_is_shown(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        await store.create(started())
        extend(tmp_path, note(2), b"\x00" * 50 + b"\n", note(4), note(7, dur=4), note(8))
        assert await seqs(store) == [1, 2, 4, 7, 8]
        assert await seqs(store, after=2, limit=1) == [4]
        assert await seqs(store, after=4) == [7, 8]


async def test_records_that_came_out_of_order_are_shown_in_file_order_and_none_is_lost(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        await store.create(started())
        extend(tmp_path, note(2), note(3), note(2, text="another"), note(4), note(3, text="another"), note(5))
        whole = await seqs(store)
        assert whole == [1, 2, 3, 2, 4, 3, 5]
        for after in range(6):
            expected = [seq for seq in whole if seq > after]
            assert await seqs(store, after=after) == expected
            assert await seqs(store, after=after) == expected


async def test_a_journal_that_was_cut_and_written_anew_is_read_anew(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        await store.create(started())
        kept = journal_of(tmp_path).read_bytes()
        extend(tmp_path, note(2), note(3))
        assert await seqs(store) == [1, 2, 3]
        journal_of(tmp_path).write_bytes(kept + note(2, text="other") + note(3, text="other") + note(4))
        records = await store.records(RUN, after=3, limit=9)
        assert [record["seq"] for record in records] == [4]
        journal_of(tmp_path).write_bytes(kept)
        assert await seqs(store, after=1) == []


async def test_a_last_line_that_gets_its_newline_later_is_not_shown_twice(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        await store.create(started())
        extend(tmp_path, note(2)[:-1])
        assert await seqs(store) == [1, 2]
        extend(tmp_path, b"\n", note(3))
        assert await seqs(store, after=2) == [3]


async def test_how_much_is_remembered_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "MARKED_RUNS", 3)
    monkeypatch.setattr(pages, "MARKS", 2)
    async with store_at(tmp_path) as store:
        for number in range(6):
            await store.create(started(f"worker-{number}"))
        for number in range(6):
            for _ in range(3):
                assert len(await store.records(f"worker-{number}", after=0, limit=5)) == 1
        assert len(store._pages._marks) == len(store._pages._durable) == 3


async def test_pages_can_be_read_by_many_at_once_while_the_run_goes_on(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        await store.create(started())
        log = await store.open(RUN)
        seen: list[list[int]] = [[] for _ in range(8)]

        async def follow(found: list[int]) -> None:
            while len(found) < 61:
                found += await seqs(store, after=found[-1] if found else 0, limit=7, up_to=log.durable_seq)
                await anyio.lowlevel.checkpoint()

        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                for found in seen:
                    tasks.start_soon(follow, found)
                for number in range(60):
                    await log.append(said(number))
                    await log.flush()
        assert seen == [list(range(1, 62))] * 8
        await log.close()


def reference(file: Path, after: int) -> list[Any]:
    """What a plain reading of the whole file gives."""
    lines = [orjson.loads(line) for line in file.read_bytes().splitlines()]
    return [line["seq"] for line in lines if line["seq"] > after]


async def test_remembered_places_never_change_the_answer(tmp_path: Path) -> None:
    chance = random.Random(5)
    async with store_at(tmp_path) as store:
        await store.create(started())
        last = 1
        for _ in range(300):
            if chance.random() < 0.5:
                seq = last + 1 if chance.random() < 0.9 else chance.randint(2, last + 1)
                extend(tmp_path, note(seq, text=str(chance.random())))
                last = max(last, seq)
            after, limit = chance.randint(0, last), chance.randint(1, 9)
            expected = await to_thread.run_sync(reference, journal_of(tmp_path), after)
            assert await seqs(store, after=after, limit=limit) == expected[:limit]
