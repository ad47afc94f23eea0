"""Large payloads beside the journal: durable before the record that names them, believed only by their hash."""

import hashlib
import os
from pathlib import Path

import anyio
import orjson
import pytest

from onward.core.line import BLOB_BYTES
from onward.errors import DiskFull
from tests.store.worlds import RUN, Passed, fault, installed, journal_of, records_in, said, started, store_at

LARGE = "x" * (BLOB_BYTES + 1)


async def test_a_record_over_64_kib_stands_in_a_blob_and_reads_the_same(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        await store.create(started())
        log = await store.open(RUN)
        await log.append(said(1, LARGE), said(2))
        await log.close()
        large, small = await store.records(RUN, after=1, limit=10)
        assert (large["content"], small["content"]) == (LARGE, "and this")
        replayed = (await store.read(RUN)).state
    assert replayed.to_json() == log.state.to_json()
    line = records_in(journal_of(tmp_path))[1]
    assert set(line) == {"seq", "dur", "ts", "type", "blob", "bytes"}
    assert len(journal_of(tmp_path).read_bytes()) < 2000


async def test_a_blob_is_durable_before_the_record_that_names_it_is_written(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        await store.create(started())
        log = await store.open(RUN)
        with installed(passed := Passed()):
            await log.append(said(1, LARGE))
        await log.close()
    assert passed.points[:9] == [
        "blobs.make.before",
        "blobs.make.after",
        "blob.write.before",
        "blob.write.after",
        "blob.flush.before",
        "blob.flush.after",
        "blob.rename.before",
        "blob.rename.unsynced",
        "blob.rename.after",
    ]
    assert passed.points[9] == "journal.write.before"


@pytest.mark.parametrize("step", ["blobs.make.before", "blob.write.before", "blob.flush.before", "blob.rename.before"])
async def test_a_blob_that_is_not_kept_writes_no_record(tmp_path: Path, step: str) -> None:
    async with store_at(tmp_path) as store:
        await store.create(started())
        log = await store.open(RUN)
        with fault(f"{step}=enospc"), pytest.raises(DiskFull):
            await log.append(said(1, LARGE))
        assert log.state.seq == 1
        await log.append(said(1, LARGE))
        await log.close()
    assert [record["seq"] for record in records_in(journal_of(tmp_path))] == [1, 2]


async def test_calls_that_end_at_once_each_keep_the_first_blob_of_a_run(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        await store.create(started())
        kept: list[str] = []

        async def keep(data: bytes) -> None:
            kept.append(await store.put_blob(RUN, data))

        async with anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(keep, b"%d" % number)
        assert sorted(kept) == sorted(hashlib.sha256(b"%d" % number).hexdigest() for number in range(8))
        assert await store.put_blob(RUN, b"0") == hashlib.sha256(b"0").hexdigest()


def missing(blob: Path) -> None:
    blob.unlink()


def wrong(blob: Path) -> None:
    blob.write_bytes(blob.read_bytes()[:-1] + b"?")


def short(blob: Path) -> None:
    blob.write_bytes(b"")


def a_link(blob: Path) -> None:
    blob.rename(blob.with_name("elsewhere"))
    blob.symlink_to("elsewhere")


def a_fifo(blob: Path) -> None:
    blob.unlink()
    os.mkfifo(blob)


def in_a_linked_directory(blob: Path) -> None:
    blob.parent.rename(blob.parent.with_name("others"))
    blob.parent.symlink_to("others")


@pytest.mark.parametrize("harm", [missing, wrong, short, a_link, a_fifo, in_a_linked_directory])
async def test_a_blob_that_cannot_be_believed_is_damage_of_its_record(tmp_path: Path, harm: object) -> None:
    async with store_at(tmp_path) as store:
        await store.create(started())
        log = await store.open(RUN)
        await log.append(said(1, LARGE))
        await log.flush()
        await log.append(said(2))
        await log.close()
        (blob,) = (tmp_path / RUN / "blobs").iterdir()
        harm(blob)  # type: ignore[operator]
        with anyio.fail_after(30):
            state = (await store.read(RUN)).state
            assert state.damage[0].what.startswith("its blob")
            assert state.seq == 3
            records = await store.records(RUN, after=0, limit=10)
            assert [record["seq"] for record in records] == [1, 2, 3]


@pytest.mark.parametrize("sha", ["../journal.jsonl", "x", "A" * 64, "", "../../../etc/passwd", 5])
async def test_a_name_that_is_no_hash_is_no_path(tmp_path: Path, sha: object) -> None:
    """A line of a planted journal may name anything."""
    async with store_at(tmp_path) as store:
        await store.create(started())
        with journal_of(tmp_path).open("ab") as journal:
            journal.write(orjson.dumps({"seq": 2, "type": "MessageAdded", "blob": sha}) + b"\n")
            journal.write(orjson.dumps({"seq": 3, "dur": 2, "type": "Note"}) + b"\n")
        assert (await store.read(RUN)).state.damage[0].what.startswith("its blob")
        assert (await store.records(RUN, after=1, limit=1))[0].get("content") is None
