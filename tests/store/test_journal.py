"""Appending and making durable: what a waiter may rely on, and what a failing disk does to it."""

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from onward.core.line import encode_body
from onward.errors import DiskFull, StoreError
from onward.store.flusher import Flusher
from onward.store.journal import Journal
from tests.store.worlds import TS, Gate, fault, installed, records_in
from tests.support import eventually

BODY = encode_body({"type": "Note", "text": "x" * 100})


@dataclass
class Desk:
    """A new journal file, with a way to open it."""

    file: Path
    flusher: Flusher

    def journal(self) -> Journal:
        fd = os.open(self.file, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        return Journal(fd, self.flusher, name="worker-1", seq=0, size=0)


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    flusher = Flusher(asyncio.get_running_loop())
    yield Desk(tmp_path / "journal.jsonl", flusher)
    await anyio.to_thread.run_sync(flusher.close)


class Waiter:
    """One who waits for durability."""

    def __init__(self) -> None:
        self.done = False
        self.error: StoreError | None = None

    async def wait(self, journal: Journal) -> None:
        try:
            await journal.flush()
        except StoreError as error:
            self.error = error
        self.done = True


async def arrived(gate: Gate, number: int) -> None:
    await eventually(lambda: gate.arrived == number)


async def test_a_waiter_is_released_only_by_a_flush_that_began_after_its_write(desk: Desk) -> None:
    journal, early, late = desk.journal(), Waiter(), Waiter()
    with installed(gate := Gate()):
        async with anyio.create_task_group() as tasks:
            journal.append([BODY], TS)
            tasks.start_soon(early.wait, journal)
            await arrived(gate, 1)
            journal.append([BODY], TS)
            tasks.start_soon(late.wait, journal)
            gate.let_pass()
            await arrived(gate, 2)
            await eventually(lambda: early.done)
            assert (late.done, journal.durable_seq) == (False, 1)
            gate.let_pass()
    assert (late.done, late.error, journal.durable_seq) == (True, None, 2)
    journal.close()


async def test_those_who_wait_together_share_one_flush(desk: Desk) -> None:
    journal, waiters = desk.journal(), [Waiter() for _ in range(20)]
    with installed(gate := Gate()):
        async with anyio.create_task_group() as tasks:
            journal.append([BODY], TS)
            tasks.start_soon(waiters[0].wait, journal)
            await arrived(gate, 1)
            for waiter in waiters[1:]:
                journal.append([BODY], TS)
                tasks.start_soon(waiter.wait, journal)
            gate.let_pass(2)
    assert (journal.durable_seq, gate.arrived) == (20, 2)
    assert all(waiter.done for waiter in waiters)
    journal.close()


async def test_what_nobody_waits_for_becomes_durable_by_itself_with_one_flush(desk: Desk) -> None:
    journal = desk.journal()
    told: list[int] = []
    journal.on_durable = told.append
    for _ in range(10):
        journal.append([BODY], TS)
    assert journal.durable_seq == 0
    await eventually(lambda: journal.durable_seq == 10)
    assert (told, desk.flusher.count) == ([10], 1)
    journal.close()


async def test_what_is_written_while_a_flush_runs_becomes_durable_though_nobody_waits_for_it(desk: Desk) -> None:
    journal = desk.journal()
    with installed(gate := Gate()):
        async with anyio.create_task_group() as tasks:
            journal.append([BODY], TS)
            tasks.start_soon(Waiter().wait, journal)
            await arrived(gate, 1)
            journal.append([BODY], TS)
            await eventually(lambda: not desk.flusher._lazy)  # the lazy flush falls due while the other one runs
            gate.let_pass(2)
            await eventually(lambda: journal.durable_seq == 2)
    journal.close()


async def test_different_journals_are_flushed_side_by_side(desk: Desk, tmp_path: Path) -> None:
    journals = [Desk(tmp_path / str(number), desk.flusher).journal() for number in range(3)]
    first = desk.journal()
    with installed(gate := Gate()):
        async with anyio.create_task_group() as tasks:
            first.append([BODY], TS)
            tasks.start_soon(Waiter().wait, first)
            await arrived(gate, 1)
            for journal in journals:
                journal.append([BODY], TS)
                tasks.start_soon(Waiter().wait, journal)
            await anyio.lowlevel.checkpoint()
            gate.let_pass()
            await arrived(gate, 4)
            gate.let_pass(3)
    for journal in [first, *journals]:
        journal.close()


@pytest.mark.parametrize(
    ("point", "error"),
    [
        ("journal.write.before=short", DiskFull),
        ("journal.write.before=enospc", DiskFull),
        ("journal.write.before=eio", StoreError),
        ("journal.write.after=eio", StoreError),
    ],
)
async def test_a_failed_write_is_undone_and_the_same_append_can_be_made_again(
    desk: Desk, point: str, error: type[StoreError]
) -> None:
    journal = desk.journal()
    journal.append([BODY], TS)
    before = desk.file.read_bytes()
    with fault(point), pytest.raises(error, match="journal of worker-1"):
        journal.append([BODY, BODY], TS)
    assert (desk.file.read_bytes(), journal.seq, journal.size) == (before, 1, len(before))
    assert journal.append([BODY, BODY], TS) == (2, len(before))
    await journal.flush()
    assert [record["seq"] for record in records_in(desk.file)] == [1, 2, 3]
    journal.close()


async def test_after_a_failed_flush_the_bytes_are_written_again_and_flushed_once(desk: Desk) -> None:
    journal = desk.journal()
    journal.append([BODY], TS)
    await journal.flush()
    with fault("journal.flush.before=eio") as plan:
        journal.append([BODY], TS)
        journal.append([BODY], TS)
        await journal.flush()
    assert plan.hits["journal.rewrite.before"] == 1
    assert (journal.durable_seq, [record["seq"] for record in records_in(desk.file)]) == (3, [1, 2, 3])
    journal.close()


async def test_each_failed_flush_has_its_own_second_chance(desk: Desk) -> None:
    journal = desk.journal()
    with fault("journal.flush.before#1=eio,journal.flush.before#3=enospc"):
        for _ in range(2):
            journal.append([BODY], TS)
            await journal.flush()
    assert journal.durable_seq == 2
    journal.close()


@pytest.mark.parametrize("kind", ["eio", "enospc"])
@pytest.mark.parametrize("point", ["journal.flush.before", "journal.flush.after"])
async def test_a_second_failed_flush_ends_the_journal_and_tells_all_who_wait(desk: Desk, point: str, kind: str) -> None:
    """A full disk too: DiskFull would promise that the same append can be made again here."""
    journal, waiters = desk.journal(), [Waiter(), Waiter()]
    with fault(f"{point}={kind}*"):
        journal.append([BODY], TS)
        async with anyio.create_task_group() as tasks:
            for waiter in waiters:
                tasks.start_soon(waiter.wait, journal)
    assert [type(waiter.error) for waiter in waiters] == [StoreError, StoreError]
    for _ in range(2):
        with pytest.raises(StoreError) as told:
            journal.append([BODY], TS)
        assert not isinstance(told.value, DiskFull)
        with pytest.raises(StoreError):
            await journal.flush()
    assert journal.durable_seq == 0
    journal.close()


async def test_a_journal_that_cannot_be_written_again_ends_at_its_durable_end(desk: Desk) -> None:
    journal = desk.journal()
    journal.append([BODY], TS)
    await journal.flush()
    durable = desk.file.read_bytes()
    waiter = Waiter()
    with fault("journal.flush.before=eio,journal.rewrite.before=enospc"):
        journal.append([BODY], TS)
        await waiter.wait(journal)
    assert type(waiter.error) is StoreError
    assert desk.file.read_bytes() == durable
    journal.close()


@pytest.mark.parametrize("asked", ["by a waiter", "lazily"])
async def test_closing_while_a_flush_runs_closes_the_file_when_it_has_ended(desk: Desk, asked: str) -> None:
    """Closed under the flush, its number could be another file's by then."""
    journal, waiter = desk.journal(), Waiter()
    fd = journal.fd
    with installed(gate := Gate()):
        async with anyio.create_task_group() as tasks:
            journal.append([BODY], TS)
            if asked == "by a waiter":
                tasks.start_soon(waiter.wait, journal)
            await arrived(gate, 1)
            journal.close()
            assert os.readlink(f"/proc/self/fd/{fd}") == str(desk.file)
            gate.let_pass()
            await eventually(lambda: journal.fd == -1)
    assert not os.path.exists(f"/proc/self/fd/{fd}") or os.readlink(f"/proc/self/fd/{fd}") != str(desk.file)
    assert (waiter.done, type(waiter.error)) == ((True, StoreError) if asked == "by a waiter" else (False, type(None)))


async def test_a_closed_journal_takes_nothing(desk: Desk) -> None:
    journal = desk.journal()
    journal.append([BODY], TS)
    await journal.flush()
    journal.close()
    journal.close()
    with pytest.raises(StoreError, match="closed"):
        journal.append([BODY], TS)
