"""meta.json: a cache that is believed only while it describes the journal as it is, and never runs ahead of it."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest

from onward.core.index import index_of
from onward.errors import StoreError
from onward.ports.store import Listed
from onward.store.filestore import FileStore
from tests.store.worlds import RUN, Gate, Passed, fault, indexed, installed, journal_of, said, started, store_at
from tests.support import eventually

META = Path(RUN) / "meta.json"


async def born(runs: Path) -> dict[str, Any]:
    """Make a run with an index; returns the index."""
    async with store_at(runs) as store:
        await indexed(store)
    index: dict[str, Any] = orjson.loads((runs / META).read_bytes())
    return index


async def listed(runs: Path) -> Listed:
    async with store_at(runs) as store:
        (found,) = await store.list_runs()
        return found


async def test_an_index_that_describes_the_journal_is_believed(tmp_path: Path) -> None:
    index = await born(tmp_path)
    assert index["journal"] == {"seq": 2, "bytes": journal_of(tmp_path).stat().st_size, "checkpoint_offset": None}
    assert (await listed(tmp_path)).index == index


async def test_an_index_of_another_length_is_shown_but_not_believed(tmp_path: Path) -> None:
    """Behind after a crash, or ahead after lost bytes: the journal decides."""
    index = await born(tmp_path)
    with journal_of(tmp_path).open("ab") as journal:
        journal.write(b"\n")
    found = await listed(tmp_path)
    assert (found.index, found.stale_index) == (None, index)


BAD: dict[str, Any] = {
    "empty": b"",
    "zeroes": b"\x00" * 500,
    "half": b'{"run_id": "worker-1"',
    "a list": b"[]",
    "null": b"null",
    "text": b"\xff\xfe",
    "of another run": {"run_id": "worker-2"},
    "no status": {"status": None},
    "a number for a time": {"wake_at": 17},
    "a number for a task": {"task": 5},
    "a number for a key": {"idempotency_key": 5},
    "a number for totals": {"totals": 5},
    "a list for a cost": {"totals": {"cost_usd": []}},
    "a status that nobody has": {"status": "sleeping"},
    "nested too deeply": b'{"run_id":"worker-1","totals":' + b"[" * 900 + b"]" * 900 + b"}",
    "no position": {"journal": None},
    "a list for a position": {"journal": []},
    "text for a size": {"journal": {"seq": 2, "bytes": "12"}},
    "truth for a seq": {"journal": {"seq": True, "bytes": 12}},
}


@pytest.mark.parametrize("what", BAD)
async def test_an_index_that_is_bad_in_any_way_is_as_good_as_none(tmp_path: Path, what: str) -> None:
    index, bad = await born(tmp_path), BAD[what]
    (tmp_path / META).write_bytes(bad if isinstance(bad, bytes) else orjson.dumps({**index, **bad}))
    found = await listed(tmp_path)
    assert (found.index, found.stale_index, found.problem) == (None, None, None)
    async with store_at(tmp_path) as store:
        assert (await store.read(RUN)).state.seq == 2


async def test_a_missing_index_is_no_problem(tmp_path: Path) -> None:
    await born(tmp_path)
    (tmp_path / META).unlink()
    assert (await listed(tmp_path)).problem is None


async def test_the_index_is_written_after_a_flush_that_covers_it_whole_or_not_at_all(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        await store.create(started())
        log = await store.open(RUN)
        await log.append(said(1))
        with installed(passed := Passed()):
            await log.write_index(index_of(log.state))
        await log.close()
    assert passed.points == [
        "journal.flush.before",
        "journal.flush.after",
        "index.write.before",
        "index.write.after",
        "index.flush.before",
        "index.flush.after",
        "index.rename.before",
        "index.rename.unsynced",
        "index.rename.after",
    ]


STEPS = ["index.write.before=short", "index.write.before=enospc", "index.flush.before=eio", "index.rename.before=eio"]


@pytest.mark.parametrize("step", STEPS)
async def test_a_replacement_that_fails_keeps_the_old_index_and_leaves_nothing(tmp_path: Path, step: str) -> None:
    before = await born(tmp_path)
    async with store_at(tmp_path) as store:
        log = await store.open(RUN)
        await log.append(said(2))
        with fault(step), pytest.raises(StoreError, match=r"meta\.json"):
            await log.write_index(index_of(log.state))
        assert orjson.loads((tmp_path / META).read_bytes()) == before
        assert not list((tmp_path / RUN).glob(".*"))
        await log.write_index(index_of(log.state))
        await log.close()
    assert orjson.loads((tmp_path / META).read_bytes())["journal"]["seq"] == 3


async def appended(store: FileStore) -> None:
    log = await store.open(RUN)
    try:
        await log.append(said(2))
        await log.write_index(index_of(log.state))
    finally:
        await log.close()


@pytest.mark.parametrize("kind", ["eio", "enospc", "eio*", "enospc*"])
@pytest.mark.parametrize("point", ["journal.flush.before", "journal.flush.after", "journal.write.before"])
async def test_the_index_is_never_ahead_of_what_is_durable(tmp_path: Path, point: str, kind: str) -> None:
    """Whatever fails: the seq that meta.json names is in the journal after the next start."""
    await born(tmp_path)
    async with store_at(tmp_path) as store:
        with fault(f"{point}={kind}"), suppress(StoreError):
            await appended(store)
        known = orjson.loads((tmp_path / META).read_bytes())["journal"]
        assert known["seq"] <= (await store.read(RUN)).state.seq
        assert known["bytes"] <= journal_of(tmp_path).stat().st_size


async def test_an_older_index_does_not_overtake_a_newer_one(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        await store.create(started())
        log = await store.open(RUN)
        gate = Gate(point="index.write.before")
        with installed(gate):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(log.write_index, index_of(log.state))
                await eventually(lambda: gate.arrived)
                await log.append(said(1))
                tasks.start_soon(log.write_index, index_of(log.state))
                gate.let_pass(2)
        await log.close()
    assert orjson.loads((tmp_path / META).read_bytes())["journal"]["bytes"] == journal_of(tmp_path).stat().st_size
