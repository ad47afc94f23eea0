"""Reading the records of a journal page by page: each page begins where one before it ended, not at the start."""

import os
from collections import OrderedDict, deque
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from threading import Lock
from typing import TypeVar
from zlib import crc32

from onward.core.line import BadLine, decode, parse
from onward.core.records import Json
from onward.store import disk, rundir

PAGE_BYTES = 16 << 20
MARKED_RUNS, MARKS = 1024, 16

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Mark:
    """A line that was read. No line before it has a higher seq, so whoever wants later ones can begin behind it."""

    seq: int = 0
    offset: int = 0
    size: int = 0
    crc: int = 0


@dataclass(frozen=True, slots=True)
class _Line:
    record: Json
    mark: Mark


class Pages:
    """The pages of all runs; remembers where the last ones ended. Its methods block; any thread may call them."""

    def __init__(self) -> None:
        self._marks: OrderedDict[str, OrderedDict[int, Mark]] = OrderedDict()
        self._durable: OrderedDict[str, int] = OrderedDict()
        self._lock = Lock()

    def read(self, runs_fd: int, run_id: str, after: int, limit: int, up_to: int | None) -> list[Json]:
        """Return records as `RunStore.records` says.

        Raises:
            NotFound, Unreadable: As they say.
            OSError: The file cannot be read.
        """
        with disk.opened_dir(run_id, dir_fd=runs_fd) as dir_fd:
            fd = disk.open_regular(rundir.JOURNAL, dir_fd=dir_fd)
            try:
                if up_to is None:
                    self._make_durable(run_id, fd)
                found, mark = _page(dir_fd, fd, self._recall(run_id, after, fd), after, limit, up_to)
            finally:
                os.close(fd)
        if mark.seq:
            with self._lock:
                marks = self._marks.get(run_id, OrderedDict())
                _put(marks, mark.seq, mark, MARKS)
                _put(self._marks, run_id, marks, MARKED_RUNS)
        return found

    def _make_durable(self, run_id: str, fd: int) -> None:
        """Flush what no writer of this process vouches for before it is shown: a power cut could take it back."""
        size = os.fstat(fd).st_size
        if self._durable.get(run_id) != size:
            os.fdatasync(fd)
            with self._lock:
                _put(self._durable, run_id, size, MARKED_RUNS)

    def _recall(self, run_id: str, after: int, fd: int) -> Mark:
        with self._lock:
            known = [mark for seq, mark in self._marks.get(run_id, {}).items() if seq <= after]
        mark = max(known, key=lambda mark: mark.seq, default=Mark())
        # The line itself is the proof that this is still the file it was, not cut and written anew.
        return mark if crc32(os.pread(fd, mark.size, mark.offset)) == mark.crc else Mark()


def _page(dir_fd: int, fd: int, mark: Mark, after: int, limit: int, up_to: int | None) -> tuple[list[Json], Mark]:
    """Return the records behind `mark` that are asked for, and the new mark."""
    found: list[Json] = []
    room, passed_over = PAGE_BYTES, False
    for line in _certain(_decoded(fd, mark), mark.seq):
        seq = line.record["seq"]
        if up_to is not None and seq > up_to:
            passed_over = True
            continue
        if seq > after:
            found.append(_with_blob(dir_fd, line.record))
            room -= line.mark.size + line.record.get("bytes", 0)
        if seq > mark.seq and not passed_over:
            mark = line.mark
        if len(found) >= limit or room <= 0:
            break
    return found, mark


def _decoded(fd: int, mark: Mark) -> Iterator[_Line | None]:
    """Yield the lines behind `mark`; None for a bad one."""
    offset = mark.offset + mark.size
    for raw in disk.read_lines(fd, offset):
        start, offset = offset, offset + len(raw)
        if not raw.strip():
            continue
        try:
            record = decode(raw.rstrip(b"\n"))
        except BadLine:
            yield None
        else:
            yield _Line(record, Mark(record["seq"], start, len(raw), crc32(raw)))


def _certain(lines: Iterable[_Line | None], last: int) -> Iterator[_Line]:
    """Leave out a torn tail, by the rule of `core.replay`: what it holds is cut off before the next append."""
    waiting: deque[_Line | int] = deque()  # a number stands for a bad place: the seq before it
    highest_dur = 0
    for line in lines:
        if line is None:
            waiting.append(last)
            continue
        seq = line.record["seq"]
        if seq > last + 1:
            waiting.append(last)
        last = max(last, seq)
        highest_dur = max(highest_dur, line.record.get("dur", seq - 1))
        waiting.append(line)
        while waiting:
            first = waiting[0]
            if isinstance(first, _Line):
                yield first
            elif first >= highest_dur:
                break
            waiting.popleft()


def _with_blob(dir_fd: int, record: Json) -> Json:
    if type(sha := record.get("blob")) is not str or (body := rundir.read_blob(dir_fd, sha)) is None:
        return record
    try:
        return {**parse(body), **record}
    except BadLine:
        return record


def _put(known: OrderedDict[K, V], key: K, value: V, longest: int) -> None:
    known[key] = value
    known.move_to_end(key)
    if len(known) > longest:
        known.popitem(last=False)
