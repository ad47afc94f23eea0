"""One run directory on disk: reading it whatever its condition, and mending its tail before the first append."""

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from zlib import crc32

import orjson

from onward.core.records import Json
from onward.core.replay import NotAJournal, Replay, Replayer
from onward.errors import NotFound, OnwardError, Unreadable
from onward.store import disk

JOURNAL = "journal.jsonl"
INDEX = "meta.json"
BLOBS = "blobs"
CALLS = "calls"


@dataclass(slots=True)
class Loaded:
    """A run open for writing: the descriptor of its journal, and what it says."""

    fd: int
    replay: Replay


def read(runs_fd: int, run_id: str) -> Replay:
    """Fold a run without changing anything. Blocks.

    Raises:
        NotFound, Unreadable, NotAJournal, NewerRecord: As they say.
    """
    dir_fd = disk.open_dir(run_id, dir_fd=runs_fd)
    try:
        fd = _open_journal(dir_fd, os.O_RDONLY)
        try:
            return _fold(dir_fd, fd, run_id)
        finally:
            os.close(fd)
    finally:
        os.close(dir_fd)


def load(runs_fd: int, run_id: str) -> Loaded:
    """Open a run for writing: a torn tail is set aside, and what was read is made durable. Blocks.

    Raises:
        NotFound, Unreadable, NotAJournal, NewerRecord: Nothing was changed.
        OSError: The disk failed while the tail was mended; nothing is lost.
    """
    dir_fd = disk.open_dir(run_id, dir_fd=runs_fd)
    try:
        fd = _open_journal(dir_fd, os.O_RDWR | os.O_APPEND)
        try:
            replay = _fold(dir_fd, fd, run_id)
            _mend(dir_fd, fd, replay)
        except BaseException:
            os.close(fd)
            raise
        return Loaded(fd, replay)
    finally:
        os.close(dir_fd)


def read_index(runs_fd: int, run_id: str) -> Json | None:
    """Return meta.json when it is a whole object about this run, else None (it is a cache). Blocks."""
    try:
        index = orjson.loads(_read_small(runs_fd, f"{run_id}/{INDEX}"))
        journal = index["journal"]
        whole = index["run_id"] == run_id and type(index["status"]) is str
        whole = whole and type(journal["seq"]) is int and type(journal["bytes"]) is int
    except (OnwardError, orjson.JSONDecodeError, KeyError, TypeError):
        return None
    return index if whole else None


def _read_small(runs_fd: int, path: str) -> bytes:
    return disk.read_file(path, dir_fd=runs_fd, limit=1024 * 1024)


def read_blob(dir_fd: int, sha: str) -> bytes | None:
    """Return the bytes of a blob; None when it is missing or is not what its name says. Blocks."""
    if len(sha) != 64 or not set(sha) <= set("0123456789abcdef"):
        return None
    try:
        data = disk.read_file(f"{BLOBS}/{sha}", dir_fd=dir_fd, limit=1 << 30)
    except OnwardError:
        return None
    return data if hashlib.sha256(data).hexdigest() == sha else None


def write_blob(runs_fd: int, run_id: str, data: bytes) -> str:
    """Keep bytes durably under their sha-256. Blocks.

    Raises:
        OSError: They are not kept.
    """
    sha = hashlib.sha256(data).hexdigest()
    dir_fd = disk.open_dir(run_id, dir_fd=runs_fd)
    try:
        if not _exists(BLOBS, dir_fd):
            disk.make_dir(BLOBS, "blobs.make", dir_fd=dir_fd)
        blobs_fd = disk.open_dir(BLOBS, dir_fd=dir_fd)
        try:
            disk.replace_file(sha, data, "blob", dir_fd=blobs_fd)
        finally:
            os.close(blobs_fd)
    finally:
        os.close(dir_fd)
    return sha


def _exists(name: str, dir_fd: int) -> bool:
    try:
        os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _open_journal(dir_fd: int, flags: int) -> int:
    try:
        return disk.open_regular(JOURNAL, flags, dir_fd=dir_fd)
    except NotFound:
        raise NotAJournal("journal.jsonl is missing") from None


def _fold(dir_fd: int, fd: int, run_id: str) -> Replay:
    load_blob: Callable[[str], bytes | None] = lambda sha: read_blob(dir_fd, sha)  # noqa: E731
    replayer = _from_checkpoint(dir_fd, fd, load_blob) or Replayer(load_blob)
    try:
        for line in disk.read_lines(fd, replayer.offset):
            replayer.feed(line)
    except OSError as error:
        raise Unreadable(f"the journal of {run_id} cannot be read: {error.strerror}") from error
    replay = replayer.finish()
    if replay.state.run_id != run_id:
        raise NotAJournal(f"its RunStarted names {replay.state.run_id!r}: this directory is a copy of that run")
    return replay


def _from_checkpoint(dir_fd: int, fd: int, load_blob: Callable[[str], bytes | None]) -> Replayer | None:
    try:
        index = orjson.loads(disk.read_file(INDEX, dir_fd=dir_fd, limit=1024 * 1024))
        offset = index["journal"]["checkpoint_offset"]
    except (OnwardError, orjson.JSONDecodeError, KeyError, TypeError):
        return None
    if type(offset) is not int or offset <= 0 or os.pread(fd, 1, offset - 1) != b"\n":
        return None
    line = next(disk.read_lines(fd, offset), b"")
    return Replayer.from_checkpoint(offset, line, load_blob)


def _mend(dir_fd: int, fd: int, replay: Replay) -> None:
    """Make the file end where the next append belongs; what is cut off is kept beside it, durably, first."""
    if replay.end < replay.size_bytes and replay.torn is not None:
        checksum = 0
        for piece in _pieces(fd, replay.end):
            checksum = crc32(piece, checksum)
        name = f"journal.torn-{replay.end}-{checksum:08x}"
        _copy_aside(dir_fd, name, fd, replay.end)
        os.ftruncate(fd, replay.end)
    elif replay.add_newline:
        os.write(fd, b"\n")
    disk.flush_data(fd, "journal.mend")


def _pieces(fd: int, offset: int) -> Iterator[bytes]:
    while piece := os.pread(fd, 1 << 20, offset):
        offset += len(piece)
        yield piece


def _copy_aside(dir_fd: int, name: str, fd: int, offset: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    copy = os.open(name, flags, disk.FILE_MODE, dir_fd=dir_fd)
    try:
        for piece in _pieces(fd, offset):
            disk.write_all(copy, piece, "torn.write")
        disk.flush_all(copy, "torn.flush")
    finally:
        os.close(copy)
    disk.flush_all(dir_fd, "torn.entry")
