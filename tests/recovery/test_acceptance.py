"""The acceptance table of inspect and revive, row by row; each id is the row's name.

Of each row: what `inspect` says, that a revive by hand agrees with it, that a refusal writes nothing, and what an entry
then writes: one RunRevived, one settlement for each open call in model order, one notice, no second of any. Where a row
cannot arise in our format `why` says so, and the nearest shape that can stands in its place. The rows about children
(B26, B32, D) and about compaction (B19 to B21, C5) come with these.
"""

import errno
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest

from onward.core.gates import look
from onward.errors import BadRequest
from onward.processes.identity import start_ticks
from onward.recovery import inspect, revive, reviving
from onward.store import disk, lock
from onward.store.lock import this_process
from onward.testing.strict import check_request
from tests.core import journals as j
from tests.core.journals import BOOT, Journal, Json, text, use
from tests.recovery.runs import entered, put, records, tree
from tests.specimens.writing import Writer
from tests.store.worlds import fault

Content = Journal | bytes | list[Json] | Callable[[Path], None]

START = [j.started(), j.claimed()]
WORK = [*START, j.inferring()]
A0 = j.turn(1, text("42"), seen=3)


def asks(*calls: str, number: int = 1, seen: int = 3, ids: "tuple[str, ...] | None" = None) -> list[Json]:
    """A turn that asks for these calls, and its batch."""
    known = ids or calls
    batch = [j.call(call_id, provider) for call_id, provider in zip(calls, known, strict=True)]
    return [j.turn(number, *map(use, known), seen=seen), j.batch(number, *batch)]


def d(*calls: str) -> list[Json]:
    """Dispatched: handed over."""
    return [j.handed_over(call_id) for call_id in calls]


def n(attempt: int = 1) -> Json:
    return j.said("[background event] x", f"revival-{attempt}", "revival")


def ended(call_id: str, ended_by: str = "itself") -> dict[str, bytes]:
    """The evidence of a command whose end was recorded by its launcher, and not journaled."""
    return Writer("worker-1").identity(call_id, BOOT).printed(call_id, "real").exit(call_id, 0, 4, ended_by).files


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """`settles`: the calls that an entry settles. `told`: it adds the notice. `by_hand` None: as `inspect` says."""

    id: str
    content: Content
    says: str
    settles: tuple[str, ...] = ()
    told: bool = True
    by_hand: bool | None = None
    cap: int | None = None
    beside: dict[str, bytes] = field(default_factory=dict)
    torn: bool = False
    why: str = ""


def journal_is(make: Callable[[str], None]) -> Callable[[Path], None]:
    def shape(run: Path) -> None:
        run.mkdir(parents=True)
        here = os.getcwd()
        os.chdir(run)
        try:
            make("journal.jsonl")
        finally:
            os.chdir(here)

    return shape


def bind(name: str) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(name)


def missing(run: Path) -> None:
    run.parent.mkdir()


def lines(*content: Json, dur: int | None = None) -> Journal:
    return Journal(dur=dur).add(*content)


def between(raw: bytes) -> Journal:
    """Foreign bytes in place of record 4, and a turn after them."""
    return lines(*WORK).skip().put(raw).add(j.turn(1, use("a"), seen=3), j.batch(1, "t1c1"), *d("t1c1"))


def behind(raw: bytes) -> Journal:
    """Foreign bytes in place of a record that was durable, with no turn after them."""
    return lines(*WORK, *asks("t1c1")).skip().put(raw).add(j.said("x"))


def at_the_end(raw: bytes) -> Journal:
    return lines(*WORK).put(raw)


def waiting() -> list[Json]:
    call = j.call("t1c1", effect="read", arguments={"question": "x?"}) | {"name": "ask_user"}
    said = [
        j.started(agent={"tools": ["ask_user"]}),
        j.claimed(),
        j.turn(1, use("t1c1", "ask_user", question="x?"), seen=2),
        j.batch(1, call),
    ]
    return [*said, *(record.to_json() for record in look(j.fold_all(said)).records)]


CUT = 'unterminated "caf\u00e9'.encode()
ILL_TYPED = j.said("x") | {"content": 5}
GONE_ON = [j.revived(), n()]

TABLE = [
    # A. The file
    Row(id="A1", content=missing, says="unreadable"),
    Row(id="A2-directory", content=journal_is(os.mkdir), says="unreadable"),
    Row(id="A2-fifo", content=journal_is(os.mkfifo), says="unreadable"),
    Row(id="A2-socket", content=journal_is(bind), says="unreadable"),
    Row(id="A2-device", content=journal_is(lambda name: os.symlink("/dev/zero", name)), says="unreadable",
        why="a device itself cannot be made here; a link to one is refused as well"),
    Row(id="A4", content=b"", says="damaged"),
    Row(id="A5", content=lines(j.started()).bytes[:-40], says="damaged"),
    Row(id="A6", content=[j.started()], says="continues", told=False, why="it was acknowledged, so it is revivable"),
    Row(id="A6-no-newline", content=lines(j.started()).bytes[:-1], says="continues", told=False),
    Row(id="A7", content=lines(j.claimed(), j.started()), says="damaged"),
    Row(id="A8", content=[*WORK, {"type": "x_future", "a": 1}], says="interrupted"),
    Row(id="A9", content=[j.started(schema=2)], says="newer"),
    Row(id="A9-must", content=[*WORK, {"type": "x_future", "must": True}], says="newer"),
    Row(id="A10", content=between(b'{"half":\n'), says="interrupted", settles=("t1c1 interrupted",),
        why="damage before the newest turn is healed"),
    Row(id="A10-after", content=behind(b'{"half":\n'), says="damaged", by_hand=True, settles=("t1c1 interrupted",)),
    Row(id="A11", content=at_the_end(b'{"half":\n{"another\n'), says="interrupted", torn=True,
        why="all that stands behind the last durable record is one torn tail"),
    Row(id="A12", content=at_the_end(b'{"crc":"0000'), says="interrupted", torn=True),
    Row(id="A13", content=at_the_end(CUT[:-1]), says="interrupted", torn=True),
    Row(id="A14", content=at_the_end(b"\x00" * 512), says="interrupted", torn=True),
    Row(id="A15", content=lines(*WORK).bytes[:-1], says="interrupted"),
    Row(id="A16", content=at_the_end(b"12"), says="interrupted", torn=True),
    Row(id="A16-terminated", content=at_the_end(b"null\n"), says="interrupted", torn=True,
        why="nothing durable stands behind it"),
    Row(id="A17", content=between(b'{"type":"caf\xe9"}\n'), says="interrupted", settles=("t1c1 interrupted",)),
    Row(id="A17-after", content=behind(b'{"type":"caf\xe9"}\n'), says="damaged", by_hand=True,
        settles=("t1c1 interrupted",)),
    Row(id="A18", content=b"\xef\xbb\xbf" + lines(*WORK).bytes, says="interrupted"),
    Row(id="A19", content=lines(*START).put(b"\n\n").add(j.inferring()).put(b"\n"), says="interrupted"),
    Row(id="A20", content=[*WORK, ILL_TYPED], says="damaged", by_hand=True),
    Row(id="A20-before", content=[*WORK, ILL_TYPED, *asks("t1c1"), *d("t1c1")], says="interrupted",
        settles=("t1c1 interrupted",), why="damage before the newest turn is healed"),
    Row(id="A20-deep", content=at_the_end(b'{"seq":4,"type":"X","a":' + b"[" * 9999 + b"\n"), says="interrupted",
        torn=True),
    Row(id="A20-digits", content=at_the_end(b'{"seq":' + b"9" * 9999 + b"}\n"), says="interrupted", torn=True),
    Row(id="A21", content=[*WORK, j.handed_over("t9c9")], says="damaged", by_hand=True),
    Row(id="A21-double", content=[*WORK, *asks("t1c1"), *d("t1c1"), j.done("t1c1"), j.done("t1c1", "late")],
        says="interrupted", why="a second result of a call is a note, not damage"),
    Row(id="A22", content=[*START, j.started(task="another"), *asks("t1c1"), *d("t1c1")], says="interrupted",
        settles=("t1c1 interrupted",)),
    # B. The end of the conversation
    Row(id="B1", content=[j.started(), j.said("x", source="system")], says="continues", told=False,
        why="it was acknowledged, so it is revivable"),
    Row(id="B2", content=[*START, j.said("x")], says="interrupted"),
    Row(id="B3", content=[*WORK, A0], says="finished"),
    Row(id="B4", content=[*WORK, A0, j.batch(1)], says="finished"),
    Row(id="B5", content=[*WORK, j.turn(1, seen=3)], says="finished"),
    Row(id="B6", content=[*WORK, A0, {"type": "SettingsChanged", "by": "me", "limits": {}}, j.claimed(epoch=2),
                          j.revived()], says="finished"),
    Row(id="B7", content=[*WORK, *asks("t1c1")], says="interrupted", settles=("t1c1 not_started",),
        why="an error result says that it did not run"),
    Row(id="B8", content=[*WORK, *asks("t1c1"), *d("t1c1")], says="interrupted", settles=("t1c1 interrupted",)),
    Row(id="B9", content=[*WORK, *asks("t1c1"), *d("t1c1")], says="interrupted", settles=("t1c1 ok",),
        beside=ended("t1c1"), why="result and settlement are one record; it is the launcher that knew the result"),
    Row(id="B10", content=[*WORK, *asks("t1c1"), *d("t1c1"), j.done("t1c1")], says="interrupted"),
    Row(id="B11", content=[*WORK, *asks("t1c1", "t1c2", "t1c3"), *d("t1c1", "t1c2"), j.done("t1c1")],
        says="interrupted", settles=("t1c2 interrupted", "t1c3 not_started")),
    Row(id="B12", content=[*WORK, *asks("t1c1", "t1c2", "t1c3"), *d("t1c3", "t1c1", "t1c2")], says="interrupted",
        settles=("t1c1 interrupted", "t1c2 interrupted", "t1c3 interrupted")),
    Row(id="B13", content=[*WORK, *asks("t1c1", "t1c2", "t1c3"), *d("t1c1", "t1c2", "t1c3"), j.done("t1c1")],
        says="interrupted", settles=("t1c2 ok", "t1c3 interrupted"), beside=ended("t1c2")),
    Row(id="B14", content=[*WORK, *asks("t1c1", "t1c2"), *d("t1c1")], says="interrupted",
        settles=("t1c1 timeout", "t1c2 not_started"), beside=ended("t1c1", "deadline")),
    Row(id="B15", content=[*WORK, *asks("t1c1"), *d("t1c1"), j.done("t1c1", "")], says="interrupted",
        why="a settlement without its answer cannot arise: they are one record; an empty answer can"),
    Row(id="B16", content=[*WORK, *asks("t1c1"), j.done("t1c1", "no", "denied", "policy")], says="interrupted"),
    Row(id="B17", content=[*WORK, *asks("t1c1"), *d("t1c1", "t1c1")], says="interrupted",
        settles=("t1c1 interrupted",)),
    Row(id="B18", content=[*WORK, *asks("t1c1", ids=("call_1",)), j.done("t1c1"),
                           *asks("t2c1", number=2, seen=6, ids=("call_1",)), *d("t2c1")],
        says="interrupted", settles=("t2c1 interrupted",)),
    Row(id="B22", content=[*WORK, *d("t1c1")], says="damaged", by_hand=True,
        why="a hand-over is written behind its batch: without one the journal lost it, and a human decides"),
    Row(id="B23", content=[*WORK, *asks("t1c1", "t1c2"), *d("t1c1", "t1c2"), j.done("t1c1"), j.done("t1c2")],
        says="interrupted"),
    Row(id="B24", content=[*WORK, j.parked("budget")], says="parked", by_hand=True, told=False,
        why="a limit is no message: it parks the run, and nothing was interrupted"),
    Row(id="B25", content=[*WORK, *asks("t1c1"), *d("t1c1"), j.done("t1c1"), j.said("steer")], says="interrupted"),
    Row(id="B27", content=[*WORK, *asks("t1c1"), *d("t1c1"), j.ended("cancelled")], says="ended"),
    Row(id="B27-asked", content=[*WORK, *asks("t1c1"), {"type": "CancelRequested", "by": "me"}], says="ended"),
    Row(id="B28", content=[*WORK, j.ended("failed")], says="ended", by_hand=True, told=False),
    Row(id="B29", content=[*WORK, *asks("t1c1"), *d("t1c1"), j.said("go on")], says="interrupted",
        settles=("t1c1 interrupted",), why="the provider view puts the message below the results"),
    Row(id="B30", content=[*WORK, *asks("t1c1", "t1c2", ids=("", "")), *d("t1c1", "t1c2"), j.done("t1c2")],
        says="interrupted", settles=("t1c1 interrupted",)),
    Row(id="B31", content=lines(*WORK, *asks("t1c1")).skip().add(j.said("x")), says="damaged", by_hand=True,
        settles=("t1c1 interrupted",), why="no writer leaves hand-overs out; a damaged file may lack them"),
    Row(id="B33", content=waiting(), says="waiting", why="the question waits under its own id"),
    Row(id="B34", content=lines(*WORK, *asks("t1c1")[:1]).bytes[:-30], says="interrupted", torn=True),
    # C. The cap, and what went before
    Row(id="C1", content=[*WORK, *GONE_ON], says="interrupted", told=False),
    Row(id="C2", content=[*WORK, j.revived()], says="interrupted",
        why="RunRevived stands first, so a death inside leaves it without the notice"),
    Row(id="C3", content=[*WORK, *GONE_ON, j.said("steer")], says="interrupted", told=False),
    Row(id="C4", content=[*WORK, *GONE_ON, *asks("t1c1", seen=5), *d("t1c1")], says="interrupted",
        settles=("t1c1 interrupted",)),
    Row(id="C6", content=[*WORK, j.revived()], says="interrupted", cap=2),
    Row(id="C7", content=lines(*WORK, *GONE_ON, j.revived(attempt=2)).put(b"torn"), says="revival-cap", cap=2),
    Row(id="C8", content=WORK, says="revival-cap", cap=0),
    Row(id="C10", content=[*WORK, j.revived(), A0], says="finished", cap=1),
    Row(id="C11", content=lines(*WORK, j.revived()).bytes[:-9], says="interrupted", cap=1, torn=True),
    Row(id="C12", content=[*WORK, j.revived() | {"attempt": "x"}, A0 | {"stop_reason": "max_tokens"}],
        says="interrupted", cap=1, why="a record with ill-typed members is damage and counts for nothing"),
]  # fmt: skip


def laid_out(row: Row, top: Path) -> Path:
    if callable(row.content):
        row.content(top / "worker-1")
        return top / "worker-1"
    run = put(top, row.content)
    for name, content in row.beside.items():
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_bytes(content)
    return run


def written(run: Path, behind: int) -> list[str]:
    """What was written behind a record, in the table's words; who claimed the run does not matter."""
    words = []
    for record in records(run, behind):
        if record["type"] == "ToolCallDone":
            assert record["is_error"] == (record["outcome"] != "ok")
            words.append(f"{record['call_id']} {record['outcome']}")
        elif record["type"] == "MessageAdded":
            assert record["source"] == "revival"
            words.append("N")
        elif record["type"] == "RunRevived":
            words.append("R")
        else:
            assert record["type"] == "RunClaimed"
    return words


def newest_seq(run: Path) -> int:
    return inspect_state(run).seq if (run / "journal.jsonl").is_file() else 0


def inspect_state(run: Path) -> Any:
    return j.replay((run / "journal.jsonl").read_bytes()).state


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.id)
def test_the_table(row: Row, tmp_path: Path) -> None:
    run = laid_out(row, tmp_path / "by-itself")
    before = tree(run.parent)
    found = inspect(run, row.cap)
    goes_on = row.says in ("interrupted", "continues")
    by_hand = goes_on if row.by_hand is None else row.by_hand

    assert (found.reason, found.revivable, found.by_hand) == (row.says, goes_on, by_hand), found
    assert tree(run.parent) == before

    hand = laid_out(row, tmp_path / "by-hand")
    before = tree(hand.parent)
    done = revive(hand, max_revivals=row.cap)
    assert (done.ok, done.reason) == (by_hand, row.says), done
    if not by_hand:
        assert tree(hand.parent) == before
        return
    if goes_on:
        _goes_on(row, run, [*(["R"] if row.says == "interrupted" else [])])
    shutil.rmtree(hand)
    _goes_on(row, laid_out(row, tmp_path / "by-hand"), ["R"], by_hand=True)


def _goes_on(row: Row, run: Path, first: list[str], *, by_hand: bool = False) -> None:
    seq = newest_seq(run)
    cut = (run / "journal.jsonl").read_bytes()
    if by_hand:
        assert revive(run, max_revivals=row.cap).ok
    assert anyio.run(entered, run).verdict == "enter"
    expected = [*first, *row.settles, *(["N"] if row.told else [])]
    assert written(run, seq) == expected
    aside = list(run.glob("journal.torn-*"))
    assert bool(aside) == row.torn
    assert all(cut.endswith(path.read_bytes()) for path in aside)
    assert check_request(inspect_state(run).conversation.request()) == []

    seq = newest_seq(run)
    told = any(record.get("source") == "revival" for record in records(run))
    assert anyio.run(entered, run).verdict == "enter"
    again = written(run, seq)
    assert again in ([["R"], []] if told else [["R", "N"], []])


def test_a3_what_cannot_be_read_is_unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An I/O error; permissions are in the tests of `inspect`, for root has all of them."""
    run = put(tmp_path, WORK)
    before = tree(tmp_path)

    def fail(*_: object) -> Iterator[bytes]:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(disk, "read_lines", fail)
    found, done = inspect(run), revive(run)
    monkeypatch.undo()
    assert (found.reason, done.ok, done.reason) == ("unreadable", False, "unreadable")
    assert "Input/output error" in found.detail
    assert tree(tmp_path) == before


def test_a23_what_another_process_works_on_is_live(tmp_path: Path) -> None:
    me = this_process(BOOT, start_ticks(os.getpid()) or 0)
    run = put(tmp_path, [j.started(), j.claimed() | {"pid": me.pid, "start_ticks": me.start_ticks}, j.inferring()])
    held = lock.take(str(tmp_path / ".lock"), me)
    before = tree(tmp_path)
    found, done = inspect(run), revive(run)
    assert (found.reason, done.ok, done.reason) == ("live", False, "live")
    assert tree(tmp_path) == before
    held.release()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (shutil.rmtree, "unreadable"),
        (lambda run: (run / "journal.jsonl").unlink(), "damaged"),
        (lambda run: (run / "journal.jsonl").write_bytes(lines(*WORK, j.ended()).bytes), "finished"),
    ],
    ids=["removed", "journal-removed", "ended"],
)
def test_a24_what_changed_after_it_was_inspected_is_looked_at_again(
    change: Callable[[Path], None], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under the lock; answered by value."""
    run = put(tmp_path, WORK)

    def inspect_and_change(*args: Any) -> Any:
        found = inspect(*args)
        change(run)
        return found

    monkeypatch.setattr(reviving, "inspect", inspect_and_change)
    done = revive(run)
    assert (done.ok, done.reason) == (False, reason)


@pytest.mark.parametrize("how", ["enospc", "short"])
def test_a25_a_disk_that_is_full_is_answered(how: str, tmp_path: Path) -> None:
    """Inspecting says yes; the revive is no error and leaves no half record."""
    run = put(tmp_path, WORK)
    before = (run / "journal.jsonl").read_bytes()
    with fault(f"journal.write.before={how}"):
        assert inspect(run).revivable
        done = revive(run)
    assert (done.ok, done.reason) == (False, "unwritable")
    assert (run / "journal.jsonl").read_bytes() == before


def test_c9_a_negative_cap_is_answered_by_inspect_and_raised_by_revive(tmp_path: Path) -> None:
    run = put(tmp_path, WORK)
    assert inspect(run, -1).reason == "revival-cap"
    with pytest.raises(BadRequest):
        revive(run, max_revivals=-1)


def test_c13_two_targets_or_none_are_a_mistake(tmp_path: Path) -> None:
    run = put(tmp_path, WORK)
    with pytest.raises(BadRequest):
        revive(run, run="worker-1", runs_dir=tmp_path)
    with pytest.raises(BadRequest):
        revive()


NAMES = [
    *(f"A{n}" for n in range(1, 26)),
    *(f"B{n}" for n in range(1, 35) if n not in (19, 20, 21, 26, 32)),
    *(f"C{n}" for n in range(1, 14) if n != 5),
]


def test_no_row_is_left_out() -> None:
    """Those that are tests of their own stand above."""
    own = {"A3", "A23", "A24", "A25", "C9", "C13"}
    assert {row.id.partition("-")[0] for row in TABLE} | own == set(NAMES)
