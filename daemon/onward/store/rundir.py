"""One run directory on disk: reading it whatever its condition, and mending its tail before the first append."""

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import cast
from zlib import crc32

from onward.core.index_form import are_questions, is_index
from onward.core.line import BadLine, parse
from onward.core.records import Json
from onward.core.replay import NotAJournal, Replay, Replayer
from onward.errors import NotFound, OnwardError, Unreadable
from onward.ports.store import Beside
from onward.store import disk
from onward.testing import faults

JOURNAL = "journal.jsonl"
INDEX = "meta.json"
BLOBS = "blobs"
CALLS = "calls"


@dataclass(slots=True)
class Loaded:
    """A run open for writing: the descriptor of its journal, what it says, and what stands beside it."""

    fd: int
    replay: Replay
    beside: Beside


def read(runs_fd: int, run_id: str) -> Replay:
    """Fold a run without changing anything. Blocks.

    Raises:
        NotFound, Unreadable, NotAJournal, NewerRecord: As they say.
    """
    with disk.opened_dir(run_id, dir_fd=runs_fd) as dir_fd:
        fd = _open_journal(dir_fd, os.O_RDONLY)
        try:
            return _fold(dir_fd, fd, run_id, _whole_index(dir_fd, run_id))
        finally:
            os.close(fd)


def load(runs_fd: int, run_id: str) -> Loaded:
    """Open a run for writing: a torn tail is set aside, and what was read is made durable. Blocks.

    Raises:
        NotFound, Unreadable, NotAJournal, NewerRecord: Nothing was changed.
        OSError: The disk failed while the tail was mended; nothing is lost.
    """
    with disk.opened_dir(run_id, dir_fd=runs_fd) as dir_fd:
        fd = _open_journal(dir_fd, os.O_RDWR | os.O_APPEND)
        try:
            index = _whole_index(dir_fd, run_id)
            replay = _fold(dir_fd, fd, run_id, index)
            torn = _mend(dir_fd, fd, replay)
            disk.remove_leftovers(dir_fd)
            with suppress(OnwardError), disk.opened_dir(BLOBS, dir_fd=dir_fd) as blobs_fd:
                disk.remove_leftovers(blobs_fd)
            index_seq = index["journal"]["seq"] if index else None
            beside = Beside(index_seq=index_seq, call_dirs=call_names(dir_fd), torn=torn)
        except BaseException:
            os.close(fd)
            raise
        return Loaded(fd, replay, beside)


def read_index(runs_fd: int, run_id: str) -> Json | None:
    """Return meta.json when it is a whole object about this run, else None (it is a cache). Blocks."""
    try:
        with disk.opened_dir(run_id, dir_fd=runs_fd) as dir_fd:
            return _whole_index(dir_fd, run_id)
    except OnwardError:
        return None


def call_names(dir_fd: int) -> tuple[str, ...]:
    """Return the names in `calls/` of a run's directory. Blocks."""
    try:
        with disk.opened_dir(CALLS, dir_fd=dir_fd) as calls_fd:
            return tuple(sorted(os.listdir(calls_fd)))
    except NotFound:
        return ()


def _whole_index(dir_fd: int, run_id: str) -> Json | None:
    try:
        index = parse(disk.read_file(INDEX, dir_fd=dir_fd, limit=1024 * 1024))
    except (OnwardError, BadLine):
        return None
    return index if is_index(index, run_id) else None


def read_questions(runs_fd: int, run_id: str, seq: int) -> list[Json] | None:
    """Return the open questions, if interactions.json lists them as they are at this seq; else None. Blocks."""
    try:
        sidecar = parse(disk.read_file(f"{run_id}/interactions.json", dir_fd=runs_fd, limit=64 << 20))
    except (OnwardError, BadLine):
        return None
    position, questions = sidecar.get("journal"), sidecar.get("interactions")
    if not isinstance(position, dict) or position.get("seq") != seq or not are_questions(questions, run_id):
        return None
    return cast("list[Json]", questions)


def read_blob(dir_fd: int, sha: str) -> bytes | None:
    """Return the bytes of a blob; None when it is missing or is not what its name says. Blocks."""
    if len(sha) != 64 or not set(sha) <= set("0123456789abcdef"):
        return None
    try:
        with disk.opened_dir(BLOBS, dir_fd=dir_fd) as blobs_fd:
            data = disk.read_file(sha, dir_fd=blobs_fd, limit=1 << 30)
    except OnwardError:
        return None
    return data if hashlib.sha256(data).hexdigest() == sha else None


def write_blob(runs_fd: int, run_id: str, data: bytes) -> str:
    """Keep bytes durably under their sha-256. Blocks.

    Raises:
        OSError: They are not kept.
    """
    sha = hashlib.sha256(data).hexdigest()
    with disk.opened_dir(run_id, dir_fd=runs_fd) as dir_fd:
        with suppress(FileExistsError):  # two calls may end at once, each with the run's first blob
            disk.make_dir(BLOBS, "blobs.make", dir_fd=dir_fd)
        with disk.opened_dir(BLOBS, dir_fd=dir_fd) as blobs_fd:
            disk.replace_file(sha, data, "blob", dir_fd=blobs_fd)
    return sha


def _open_journal(dir_fd: int, flags: int) -> int:
    try:
        return disk.open_regular(JOURNAL, flags, dir_fd=dir_fd)
    except NotFound:
        raise NotAJournal("journal.jsonl is missing") from None


def _fold(dir_fd: int, fd: int, run_id: str, index: Json | None) -> Replay:
    faults.hit_of("run.fold", run_id)
    load_blob: Callable[[str], bytes | None] = lambda sha: read_blob(dir_fd, sha)  # noqa: E731
    try:
        replayer = _from_checkpoint(fd, index, load_blob) or Replayer(load_blob)
        for line in disk.read_lines(fd, replayer.offset):
            replayer.feed(line)
    except OSError as error:
        raise Unreadable(f"the journal of {run_id} cannot be read: {error.strerror}") from error
    replay = replayer.finish()
    if replay.state.run_id != run_id:
        raise NotAJournal(f"its RunStarted names {replay.state.run_id!r}: this directory is a copy of that run")
    return replay


def _from_checkpoint(fd: int, index: Json | None, load_blob: Callable[[str], bytes | None]) -> Replayer | None:
    offset = index["journal"].get("checkpoint_offset") if index else None
    if type(offset) is not int or not 0 < offset < os.fstat(fd).st_size or os.pread(fd, 1, offset - 1) != b"\n":
        return None
    line = next(disk.read_lines(fd, offset), b"")
    return Replayer.from_checkpoint(offset, line, load_blob)


def _mend(dir_fd: int, fd: int, replay: Replay) -> str | None:
    """Make the file end where the next append belongs; what is cut off is kept beside it, durably, first.

    Returns the name under which it is kept, None where nothing was cut off.
    """
    name = None
    if replay.end < replay.size_bytes and replay.torn is not None:
        checksum = 0
        for piece in _pieces(fd, replay.end):
            checksum = crc32(piece, checksum)
        name = f"journal.torn-{replay.end}-{checksum:08x}"
        _copy_aside(dir_fd, name, fd, replay.end)
        os.ftruncate(fd, replay.end)
    elif replay.add_newline:
        disk.write_all(fd, b"\n", "journal.newline")
    disk.flush_data(fd, "journal.mend")
    return name


def _pieces(fd: int, offset: int) -> Iterator[bytes]:
    while piece := os.pread(fd, 1 << 20, offset):
        offset += len(piece)
        yield piece


def _copy_aside(dir_fd: int, name: str, fd: int, offset: int) -> None:
    copy = disk.open_regular(name, os.O_WRONLY | os.O_CREAT, dir_fd=dir_fd)
    try:
        os.ftruncate(copy, 0)
        for piece in _pieces(fd, offset):
            disk.write_all(copy, piece, "torn.write")
        disk.flush_all(copy, "torn.flush")
    finally:
        os.close(copy)
    disk.flush_all(dir_fd, "torn.entry")
