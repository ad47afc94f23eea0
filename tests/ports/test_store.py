"""What every store promises, asked of the one on disk and of the one in memory."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from anyio import create_task_group, lowlevel

from onward.core.index import index_of
from onward.core.line import BLOB_BYTES
from onward.core.records import Json, Record, RunEnded, RunStarted
from onward.core.state import RunState
from onward.core.status import Status
from onward.errors import Conflict, DiskFull, NotFound, StoreError
from onward.ports.store import RunLog, RunStore
from onward.store.clock import SystemClock
from onward.store.filestore import open_store
from onward.store.lock import this_process
from onward.testing import faults
from onward.testing.faults import FaultPlan
from onward.testing.memory_store import MemoryStore
from tests.store.worlds import RUN, said, started, turn
from tests.support import eventually

EVERY_WRITE = (
    *("journal.write", "blob.write", "index.write", "birth.write", "facts.write", "call.make", "blobs.make"),
    *("hold.write", "instance.write"),
)


@dataclass
class Disk:
    """A store and its disk. `full()` is a block in which nothing can be written."""

    store: RunStore
    full: Callable[[], AbstractContextManager[None]]

    async def opened(self, record: RunStarted | None = None) -> RunLog:
        record = record or started()
        await self.store.create(record)
        return await self.store.open(record.run_id)

    async def index(self) -> Json | None:
        """The index of the one run, believed or not."""
        (run,) = await self.store.list_runs()
        return run.stale_index

    async def seqs(self, *, after: int = 0, limit: int = 100, up_to: int | None = None) -> list[int]:
        return [record["seq"] for record in await self.store.records(RUN, after=after, limit=limit, up_to=up_to)]


@contextmanager
def full_disk() -> Iterator[None]:
    faults.install(FaultPlan.parse(",".join(f"{point}.before=enospc*" for point in EVERY_WRITE)))
    try:
        yield
    finally:
        faults.install(None)


@contextmanager
def full_memory(store: MemoryStore) -> Iterator[None]:
    store.full = True
    yield
    store.full = False


@pytest.fixture(params=["disk", "memory"])
async def disk(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Disk]:
    if request.param == "memory":
        memory = MemoryStore(SystemClock(), tmp_path)
        yield Disk(memory, lambda: full_memory(memory))
        return
    store = await open_store(tmp_path / "runs", SystemClock(), this_process("boot", 1), lock_wait_s=0)
    yield Disk(store, full_disk)
    await store.close()


async def test_a_run_is_born_with_its_first_record_durable(disk: Disk) -> None:
    await disk.store.create(started())
    (record,) = await disk.store.records(RUN, after=0, limit=10)
    assert (record["type"], record["seq"], record["task"]) == ("RunStarted", 1, "do it")
    assert (await disk.store.read(RUN)).state.run_id == RUN
    assert [run.run_id for run in await disk.store.list_runs()] == [RUN]


async def test_an_id_is_given_once(disk: Disk) -> None:
    await disk.store.create(started())
    with pytest.raises(Conflict):
        await disk.store.create(started(task="another"))
    assert (await disk.store.read(RUN)).state.task == "do it"


async def test_a_run_that_is_not_there_is_not_found(disk: Disk) -> None:
    store = disk.store
    for act in (store.open, store.read):
        with pytest.raises(NotFound):
            await act("worker-9")
    with pytest.raises(NotFound):
        await store.records("worker-9", after=0, limit=1)


async def test_the_state_changes_with_each_append_and_is_the_state_that_is_read_back(disk: Disk) -> None:
    log = await disk.opened()
    assert await log.append(said(1)) == 2
    assert await log.append(said(2), turn(1, "é🍕")) == 4
    assert (log.state.seq, log.state.turns) == (4, 1)
    await log.flush()
    assert (await disk.store.read(RUN)).state.to_json() == log.state.to_json()
    await log.close()


async def test_a_run_goes_on_where_it_was_closed(disk: Disk) -> None:
    log = await disk.opened()
    await log.append(said(1))
    await log.close()
    again = await disk.store.open(RUN)
    assert (again.state.seq, again.durable_seq) == (2, 2)
    assert await again.append(said(2)) == 3
    await again.close()
    assert await disk.seqs() == [1, 2, 3]


async def test_a_flush_makes_durable_what_was_appended_and_tells(disk: Disk) -> None:
    log = await disk.opened()
    told: list[int] = []
    log.on_durable = told.append
    await log.append(said(1))
    assert log.durable_seq == 1
    await log.append(said(2))
    await log.flush()
    assert (log.durable_seq, told[-1]) == (3, 3)
    await log.close()


async def test_what_is_appended_becomes_durable_by_itself(disk: Disk) -> None:
    log = await disk.opened()
    await log.append(said(1))
    await eventually(lambda: log.durable_seq == 2)
    await log.close()


async def test_pages_of_records_are_in_order_and_bounded(disk: Disk) -> None:
    log = await disk.opened()
    for number in range(9):
        await log.append(said(number))
    await log.flush()
    assert await disk.seqs() == list(range(1, 11))
    assert await disk.seqs(after=3, limit=2) == [4, 5]
    assert await disk.seqs(after=3, up_to=5) == [4, 5]
    assert await disk.seqs(after=10) == []
    await log.close()


async def test_a_large_record_reads_the_same_as_a_small_one(disk: Disk) -> None:
    log = await disk.opened()
    await log.append(said(1, "x" * 100_000))
    await log.flush()
    (record,) = await disk.store.records(RUN, after=1, limit=1)
    assert (record["type"], record["content"], record["seq"]) == ("MessageAdded", "x" * 100_000, 2)
    assert (await disk.store.read(RUN)).state.to_json() == log.state.to_json()
    await log.close()


async def test_a_blob_is_named_by_its_content(disk: Disk) -> None:
    await disk.store.create(started())
    first = await disk.store.put_blob(RUN, b"content")
    assert first == await disk.store.put_blob(RUN, b"content")
    assert len(first) == 64


async def test_an_index_is_believed_as_long_as_it_describes_the_journal(disk: Disk) -> None:
    log = await disk.opened()
    await log.append(said(1))
    assert await disk.index() is None
    await log.write_index(index_of(log.state))
    (run,) = await disk.store.list_runs()
    assert run.index is not None
    assert (run.index["task"], run.index["journal"]["seq"], log.durable_seq) == ("do it", 2, 2)
    assert await disk.index() == run.index
    await log.append(said(2))
    await log.flush()
    (run,) = await disk.store.list_runs()
    assert run.index is None
    assert run.stale_index == await disk.index()
    await log.close()


async def test_a_full_disk_takes_nothing_and_the_same_append_can_be_made_again(disk: Disk) -> None:
    log = await disk.opened()
    with disk.full():
        for records in ((said(1),), (said(1), said(2)), (said(1, "x" * 100_000),)):
            with pytest.raises(DiskFull):
                await log.append(*records)
        with pytest.raises(DiskFull):
            await disk.store.put_blob(RUN, b"content")
        with pytest.raises(DiskFull):
            await disk.store.create(started("worker-2"))
        with pytest.raises(DiskFull):
            await disk.store.append_fact(type="Noted")
        with pytest.raises(DiskFull):
            await disk.store.make_call_dir(RUN, "t1c1")
        assert log.state.seq == 1
    assert await log.append(said(1), said(2)) == 3
    await log.close()
    assert await disk.seqs() == [1, 2, 3]
    assert [run.run_id for run in await disk.store.list_runs()] == [RUN]
    assert await disk.store.facts() == []


async def test_an_index_that_a_full_disk_does_not_take_leaves_the_old_one(disk: Disk) -> None:
    log = await disk.opened()
    await log.write_index(index_of(log.state))
    before = await disk.index()
    await log.append(said(1))
    with disk.full(), pytest.raises(DiskFull):
        await log.write_index(index_of(log.state))
    assert await disk.index() == before
    await log.close()


async def test_a_closed_log_takes_nothing_and_can_be_closed_again(disk: Disk) -> None:
    log = await disk.opened()
    await log.append(said(1))
    await log.close()
    await log.close()
    with pytest.raises(StoreError):
        await log.append(said(2))
    assert await disk.seqs() == [1, 2]


async def test_the_evidence_of_a_call_has_a_place_that_comes_and_goes(disk: Disk) -> None:
    store = disk.store
    await store.create(started())
    assert await store.call_dirs(RUN) == []
    path = await store.make_call_dir(RUN, "t1c2")
    await store.make_call_dir(RUN, "t1c1")
    assert path == store.call_dir(RUN, "t1c2")
    assert path.is_dir()
    assert await store.call_dirs(RUN) == ["t1c1", "t1c2"]
    with pytest.raises(StoreError):
        await store.make_call_dir(RUN, "t1c1")
    (path / "stdout").write_text("printed")
    for _ in range(2):
        await store.remove_call_dir(RUN, "t1c2")
    assert await store.call_dirs(RUN) == ["t1c1"]
    with pytest.raises(NotFound):
        store.call_dir(RUN, "../t1c1")


async def test_facts_are_kept_in_order(disk: Disk) -> None:
    await disk.store.append_fact(type="DaemonStarted", pid=1)
    await disk.store.append_fact(type="DaemonStopped", pid=1)
    facts = [{name: fact[name] for name in ("seq", "type", "pid")} for fact in await disk.store.facts()]
    assert facts == [{"seq": 1, "type": "DaemonStarted", "pid": 1}, {"seq": 2, "type": "DaemonStopped", "pid": 1}]


async def test_a_store_says_which_one_it_is(disk: Disk) -> None:
    store = disk.store
    assert len(store.instance) == 32
    assert store.runs_inode > 0
    assert type(store.machine_id) is str
    assert store.lock_path.name == ".lock"


async def test_a_store_is_held_as_long_as_it_says(disk: Disk) -> None:
    store = disk.store
    assert await store.hold() is None
    for why in ("an upgrade", "a copy"):
        await store.set_hold(why)
        assert await store.hold() == why
    with disk.full(), pytest.raises(DiskFull):
        await store.set_hold("full")
    assert await store.hold() == "a copy"
    for _ in range(2):
        await store.set_hold(None)
        assert await store.hold() is None


async def test_a_store_can_become_another_one(disk: Disk) -> None:
    before = disk.store.instance
    with disk.full(), pytest.raises(DiskFull):
        await disk.store.renew_instance()
    assert disk.store.instance == before
    await disk.store.renew_instance()
    assert (len(disk.store.instance), disk.store.instance == before) == (32, False)


async def test_a_power_cut_in_memory_takes_what_was_not_durable(tmp_path: Path) -> None:
    """On a real disk the crash suite and the failing flushes show this; the fake has it for the tests of others."""
    store = MemoryStore(SystemClock(), tmp_path)
    await store.create(started())
    log = await store.open(RUN)
    await log.append(said(1))
    await log.flush()
    await log.append(said(2))
    store.power_cut()
    with pytest.raises(StoreError, match="power"):
        await log.append(said(3))
    await lowlevel.checkpoint()
    state: RunState = (await store.read(RUN)).state
    assert state.seq == 2


async def test_a_secret_that_becomes_known_is_masked_in_everything_that_is_written_from_then_on(disk: Disk) -> None:
    value = "a-value-that-nobody-may-read"
    disk.store.secrets.add("TOKEN", value)

    log = await disk.opened(started(task=f"use {value}"))
    await log.append(said(1, f"it is {value}"))
    await log.flush()

    first, second = await disk.store.records(RUN, after=0, limit=10)
    assert (first["task"], second["content"]) == ("use [secret TOKEN]", "it is [secret TOKEN]")
    masked = await disk.store.put_blob(RUN, value.encode())
    assert masked == await disk.store.put_blob(RUN, b"[secret TOKEN]")


async def test_what_is_written_is_decided_at_the_moment_of_writing(disk: Disk) -> None:
    """A long record is written in two steps; who decides by the state is asked again between them."""
    log = await disk.opened()
    over = RunEnded(status=Status.COMPLETED, reason="done")
    asked: list[Status] = []

    def unless_over(record: Record) -> list[Record]:
        asked.append(log.state.status)
        return [] if log.state.status is Status.COMPLETED else [record]

    async with create_task_group() as both:
        both.start_soon(log.write, lambda: unless_over(said(1, "y" * (BLOB_BYTES + 1))))
        both.start_soon(log.append, over)
    assert [r["type"] for r in await disk.store.records(RUN, after=1, limit=9)] == ["RunEnded"]
    assert asked == [Status.ACTIVE, Status.COMPLETED]
    await log.close()


async def test_nothing_is_written_where_nothing_is_decided(disk: Disk) -> None:
    log = await disk.opened()
    assert await log.write(list) == 1
    await log.close()
    assert await disk.seqs() == [1]
