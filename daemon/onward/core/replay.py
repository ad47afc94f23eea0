"""Replay: from the lines of a journal to a state, whatever condition the file is in. Pure.

Feed every line in file order, then `finish`. What is bad is told apart by `dur`, the highest seq known durable when a
line was written: a bad place that begins after the highest `dur` of the whole file is a torn tail (with all that stands
behind it), any other is a gap between two good parts, and both parts are used.
"""

from array import array
from codecs import BOM_UTF8
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from onward.core import fold
from onward.core.line import BadLine, decode, fingerprint, parse
from onward.core.records import FOLD_VERSION, BadRecord, Json
from onward.core.state import RunState


class NotAJournal(ValueError):
    """The file does not begin with RunStarted, so that no run can be made of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What the bytes of a journal say.

    `end` is the offset at which the next append belongs; `torn` says what stands behind it and has to be set aside
    first (None: nothing). `add_newline`: the last line is whole but for its newline.
    """

    state: RunState
    end: int
    torn: str | None
    add_newline: bool
    size_bytes: int
    checkpoint_offset: int | None
    checkpoint_bytes: int


@dataclass(slots=True)
class _Gap:
    """A bad place that begins after record `after_seq`; -1 where no bytes are bad, so that it is never a torn tail."""

    offset: int
    after_seq: int
    what: str


@dataclass(slots=True)
class Replayer:
    """Folds a journal line by line; memory is bounded by what was not durable when it was written.

    `load_blob` gives the bytes of a blob by its sha-256, or None when it is missing or wrong.
    """

    load_blob: Callable[[str], bytes | None]
    state: RunState = field(default_factory=RunState)
    offset: int = 0
    _last_seq: int = 0
    _end: int = 0
    _highest_dur: int = 0
    _waiting: "deque[_Gap | tuple[int, int, Json]]" = field(default_factory=deque)
    _crcs: "array[int]" = field(default_factory=lambda: array("I"))
    _first_seq: int = 1
    _add_newline: bool = False
    _checkpoint: tuple[int, int] | None = None

    @classmethod
    def from_checkpoint(cls, offset: int, line: bytes, load_blob: Callable[[str], bytes | None]) -> "Replayer | None":
        """Return a replayer that begins at this Checkpoint line (newline included), or None when it is not usable."""
        replayer = cls(load_blob, offset=offset)
        try:
            record = replayer._resolve(decode(line.rstrip(b"\n")))
        except BadLine:
            return None
        state = fold.restore(record) if line.endswith(b"\n") else None
        if state is None:
            return None
        replayer.state, replayer._last_seq, replayer._first_seq = state, record["seq"], record["seq"]
        replayer._crcs.append(fingerprint(line[:-1]))
        replayer._highest_dur = record.get("dur", 0)
        replayer.offset = replayer._end = offset + len(line)
        replayer._checkpoint = (offset, record.get("bytes", len(line)))
        return replayer

    def feed(self, raw: bytes) -> None:
        """Take the next line, newline included (only the last one of a file may lack it).

        Raises:
            NewerRecord: A newer Onward wrote something that this one must not overlook.
        """
        offset, self.offset = self.offset, self.offset + len(raw)
        whole = raw.endswith(b"\n")
        line = raw[:-1] if whole else raw
        if offset == 0:
            line = line.removeprefix(BOM_UTF8)
        try:
            record = decode(line)
            if "blob" in record:
                record = self._resolve(record)
        except BadLine as error:
            if line.strip() or not whole:
                self._waiting.append(_Gap(offset, self._last_seq, str(error)))
            elif not self._waiting:
                self._end = self.offset
            return
        seq, before = record["seq"], self._last_seq
        if seq <= before:
            self._repeated(offset, raw, line, record)
        else:
            if missing := seq - before - 1:
                self._waiting.append(_Gap(offset, before, f"records {before + 1} to {seq - 1} are missing"))
                self._crcs.extend([0] * missing if missing < 1_000_000 else [])
            self._crcs.append(fingerprint(line))
            self._last_seq = seq
            self._take(offset, len(raw), record)
        self._add_newline = not whole

    def finish(self) -> Replay:
        """Return the result.

        Raises:
            NotAJournal: The first record is missing or no RunStarted.
        """
        torn = next((gap.what for gap in self._waiting if isinstance(gap, _Gap)), None)
        if not self.state.run_id:
            damage = self.state.damage[0].what if self.state.damage else None
            raise NotAJournal(damage or torn or "the journal is empty")
        offset, size = self._checkpoint or (None, 0)
        return Replay(
            state=self.state,
            end=self._end,
            torn=torn,
            add_newline=self._add_newline and torn is None,
            size_bytes=self.offset,
            checkpoint_offset=offset,
            checkpoint_bytes=size,
        )

    def _resolve(self, record: Json) -> Json:
        sha = record.get("blob")
        if sha is None:
            return record
        body = self.load_blob(sha) if type(sha) is str else None
        if body is None:
            raise BadLine(f"its blob {sha!r} is missing or damaged")
        members = parse(body)
        if members.get("type") != record["type"]:
            raise BadLine(f"its blob {sha!r} holds no {record['type']}")
        return {**members, **record}

    def _repeated(self, offset: int, raw: bytes, line: bytes, record: Json) -> None:
        position = record["seq"] - self._first_seq
        if 0 <= position < len(self._crcs) and self._crcs[position] == fingerprint(line):
            if not self._waiting:
                self._end = self.offset
            return
        self._waiting.append(_Gap(offset, -1, f"record {record['seq']} is there twice"))
        self._take(offset, len(raw), record)

    def _take(self, offset: int, length: int, record: Json) -> None:
        dur = record.get("dur", record["seq"] - 1)
        if dur > self._highest_dur:
            self._highest_dur = dur
        if not self._waiting:
            self._fold(offset, length, record)
            return
        self._waiting.append((offset, length, record))
        while self._waiting:
            first = self._waiting[0]
            if isinstance(first, _Gap):
                if first.after_seq >= self._highest_dur:
                    return
                fold.note_damage(self.state, first.offset, first.what)
            else:
                self._fold(*first)
            self._waiting.popleft()

    def _fold(self, offset: int, length: int, record: Json) -> None:
        self._end = offset + length
        if "hand" in record:
            self.state.hand_written += 1
        if not self.state.run_id and record["type"] != "RunStarted":
            raise NotAJournal(f"the journal begins with {record['type']!r}, not with RunStarted")
        if record["type"] == "Checkpoint":
            self._use_checkpoint(offset, length, record)
        try:
            fold.apply(self.state, record)
        except BadRecord as error:
            fold.note_damage(self.state, offset, str(error))
            self.state.seq = max(self.state.seq, record["seq"])

    def _use_checkpoint(self, offset: int, length: int, record: Json) -> None:
        if record.get("fold") != FOLD_VERSION or record["seq"] <= self.state.seq:
            return  # of another version, or out of order: it does not hold what was folded since
        self._checkpoint = (offset, record.get("bytes", length))
        if self.state.damage and (restored := fold.restore(record)):
            restored.damage, restored.hand_written = self.state.damage, self.state.hand_written
            self.state = restored
