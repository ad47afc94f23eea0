"""The end of a journal after a crash: what is used, what is set aside, and what the next append stands on."""

import os
from pathlib import Path
from zlib import crc32

import pytest

from onward.core.line import encode_body, seal
from onward.errors import DiskFull, StoreError
from tests.store.worlds import RUN, TS, Passed, fault, installed, journal_of, records_in, said, started, store_at, turn

TORN_LINE = b'{"crc":"0000'
TORN = [b'{"crc":"', b"\x00" * 4096, '{"text":"é'.encode()[:-1], b"x" * 200_000, b"\xf0\x9f\x8d", b"half a line\n"]


async def born(runs: Path, records: int = 2) -> bytes:
    """Make a run; returns the bytes of its journal."""
    async with store_at(runs) as store:
        await store.create(started())
        log = await store.open(RUN)
        for number in range(records):
            await log.append(said(number))
            await log.flush()
        await log.close()
    return journal_of(runs).read_bytes()


async def opened(runs: Path, *texts: int) -> list[int]:
    """Open the run, append messages, close it; returns the seqs in the file."""
    async with store_at(runs) as store:
        log = await store.open(RUN)
        for number in texts:
            await log.append(said(number))
        await log.close()
    return [record["seq"] for record in records_in(journal_of(runs))]


def set_aside(runs: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (runs / RUN).glob("journal.torn-*")}


@pytest.mark.parametrize("torn", TORN, ids=range(len(TORN)))
async def test_a_torn_tail_is_kept_beside_the_journal_and_cut_off_before_the_next_append(
    tmp_path: Path, torn: bytes
) -> None:
    whole = await born(tmp_path)
    journal_of(tmp_path).write_bytes(whole + torn)
    assert await opened(tmp_path, 7) == [1, 2, 3, 4]
    assert set_aside(tmp_path) == {f"journal.torn-{len(whole)}-{crc32(torn):08x}": torn}


async def test_lines_behind_a_torn_one_go_aside_with_it(tmp_path: Path) -> None:
    """None of them was known durable: `dur` says so."""
    whole = await born(tmp_path)
    tail = b"{torn\n" + seal(5, 3, TS, encode_body(said(5).to_json()))
    journal_of(tmp_path).write_bytes(whole + tail)
    assert await opened(tmp_path) == [1, 2, 3]
    assert list(set_aside(tmp_path).values()) == [tail]


async def test_two_different_torn_tails_at_the_same_place_are_both_kept(tmp_path: Path) -> None:
    whole = await born(tmp_path)
    for torn in (b"first", b"second"):
        journal_of(tmp_path).write_bytes(whole + torn)
        await opened(tmp_path)
    assert sorted(set_aside(tmp_path).values()) == [b"first", b"second"]


async def test_a_whole_record_without_its_newline_is_used_and_gets_it(tmp_path: Path) -> None:
    whole = await born(tmp_path)
    journal_of(tmp_path).write_bytes(whole[:-1])
    assert await opened(tmp_path, 7) == [1, 2, 3, 4]
    assert set_aside(tmp_path) == {}


async def test_a_gap_between_durable_records_stays_where_it_is(tmp_path: Path) -> None:
    whole = await born(tmp_path, records=5)
    lines = whole.split(b"\n")
    lines[2] = b"\x00" * len(lines[2])
    journal_of(tmp_path).write_bytes(b"\n".join(lines))
    async with store_at(tmp_path) as store:
        log = await store.open(RUN)
        assert (log.state.seq, [place.what for place in log.state.damage]) == (
            6,
            ["zero bytes", "records 3 to 3 are missing"],
        )
        await log.append(said(9))
        await log.close()
    assert journal_of(tmp_path).read_bytes().startswith(b"\n".join(lines))
    assert set_aside(tmp_path) == {}


async def test_reading_changes_nothing(tmp_path: Path) -> None:
    torn = await born(tmp_path) + b"torn"
    journal_of(tmp_path).write_bytes(torn)
    async with store_at(tmp_path) as store:
        assert (await store.read(RUN)).torn is not None
        await store.records(RUN, after=0, limit=10)
        await store.list_runs()
    assert journal_of(tmp_path).read_bytes() == torn
    assert set_aside(tmp_path) == {}


async def test_what_was_read_is_flushed_before_anybody_acts_on_it(tmp_path: Path) -> None:
    """A record that a crash left in the page cache could be taken back by a power cut after it was answered."""
    await born(tmp_path)
    async with store_at(tmp_path) as store:
        with installed(passed := Passed()):
            log = await store.open(RUN)
        assert passed.points == ["journal.mend.before", "journal.mend.after"]
        assert log.durable_seq == 3
        await log.close()


async def test_the_torn_tail_is_safe_before_it_is_cut_off(tmp_path: Path) -> None:
    whole = await born(tmp_path)
    journal_of(tmp_path).write_bytes(whole + b"torn")
    for point in ("torn.write.before", "torn.write.after", "torn.flush.before", "torn.entry.before"):
        async with store_at(tmp_path) as store:
            with fault(f"{point}=enospc"), pytest.raises(DiskFull, match=f"opening run {RUN}"):
                await store.open(RUN)
        assert journal_of(tmp_path).read_bytes() == whole + b"torn"
    assert await opened(tmp_path) == [1, 2, 3]
    assert list(set_aside(tmp_path).values()) == [b"torn"]


@pytest.mark.parametrize("point", ["journal.mend.before=eio", "journal.newline.before=enospc"])
async def test_an_opening_that_fails_lets_go_of_the_file_and_can_be_made_again(tmp_path: Path, point: str) -> None:
    whole = await born(tmp_path)
    journal_of(tmp_path).write_bytes(whole[:-1])
    async with store_at(tmp_path) as store:
        with fault(point), pytest.raises(StoreError):
            await store.open(RUN)
        held = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if fd != "x" and _is_open(fd)]
        assert str(journal_of(tmp_path)) not in held
    assert await opened(tmp_path) == [1, 2, 3]


def _is_open(fd: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{fd}")


async def test_a_planted_fifo_in_place_of_the_copy_is_not_waited_for(tmp_path: Path) -> None:
    whole = await born(tmp_path)
    journal_of(tmp_path).write_bytes(whole + b"torn")
    os.mkfifo(tmp_path / RUN / f"journal.torn-{len(whole)}-{crc32(b'torn'):08x}")
    async with store_at(tmp_path) as store:
        with pytest.raises(StoreError):
            await store.open(RUN)
    assert journal_of(tmp_path).read_bytes() == whole + b"torn"


async def test_a_kill_anywhere_in_the_last_record_loses_only_that_record(tmp_path: Path) -> None:
    """The cut goes through the middle of characters too."""
    async with store_at(tmp_path) as store:
        await store.create(started())
        log = await store.open(RUN)
        await log.append(turn(1, "é🍕"))
        await log.close()
    whole = journal_of(tmp_path).read_bytes()
    first = whole.index(b"\n") + 1
    for cut in range(first, len(whole), 3):
        journal_of(tmp_path).write_bytes(whole[:cut])
        seqs = await opened(tmp_path)
        assert seqs == ([1, 2] if cut == len(whole) - 1 else [1]), cut


async def test_whoever_opens_a_run_is_told_what_was_set_aside(tmp_path: Path) -> None:
    """Once, at the opening that cut it off: so that it is never done in silence."""
    whole = await born(tmp_path)
    journal_of(tmp_path).write_bytes(whole + TORN_LINE)
    async with store_at(tmp_path) as store:
        for expected in (f"journal.torn-{len(whole)}-{crc32(TORN_LINE):08x}", None):
            run_log = await store.open(RUN)
            assert run_log.beside.torn == expected
            await run_log.close()
