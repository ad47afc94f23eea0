"""The lock of a runs directory: one daemon writes, everybody else may ask who.

An open file description lock (fcntl(2), F_OFD_SETLK): it belongs to the open file, not to the process, goes with the
last descriptor, and can be asked for (F_OFD_GETLK) without being taken.
"""

import fcntl
import os
import socket
import struct
from dataclasses import dataclass

import orjson

from onward.errors import Refused
from onward.store import disk

_FLOCK = struct.Struct("hhqqi4x")  # struct flock on 64-bit Linux: type, whence, start, len, pid


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who holds, or held, the lock, as it stands in the file."""

    host: str = "?"
    pid: int = 0
    start_ticks: int = 0
    boot_id: str = ""

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


class Held(Refused):
    """Somebody else holds the lock, for the moment."""


class RunsLock:
    """The held lock. It is let go by `release`, or when the process ends."""

    def __init__(self, fd: int, path: str) -> None:
        self.fd, self.path = fd, path

    def still_ours(self) -> bool:
        """Whether the path still names the file that is locked (somebody may have removed or replaced it)."""
        try:
            there = os.stat(self.path, follow_symlinks=False)
        except OSError:
            return False
        ours = os.fstat(self.fd)
        return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)

    def release(self) -> None:
        os.close(self.fd)


def take(path: str, holder: Holder) -> RunsLock:
    """Take the lock. Blocks for no longer than it takes to look.

    Raises:
        Held: Somebody else holds it.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, disk.FILE_MODE)
    lock = RunsLock(fd, path)
    if not _try(fd) or not lock.still_ours():
        other = _holder(fd)
        lock.release()
        raise Held(f"another daemon holds {path!r}: {other}. Stop it, or use another runs directory")
    try:
        os.ftruncate(fd, 0)
        os.pwrite(fd, orjson.dumps(holder) + b"\n", 0)
    except OSError:
        lock.release()
        raise
    return lock


def holder_of(path: str) -> Holder | None:
    """Return who holds the lock now, or None. Takes nothing and changes nothing."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        answer = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        return None if _FLOCK.unpack(answer)[0] == fcntl.F_UNLCK else _holder(fd)
    finally:
        os.close(fd)


def this_process(boot_id: str, start_ticks: int) -> Holder:
    """Return the holder that this process would be."""
    return Holder(host=socket.gethostname(), pid=os.getpid(), start_ticks=start_ticks, boot_id=boot_id)


def _try(fd: int) -> bool:
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    except (BlockingIOError, PermissionError):
        return False
    return True


def _holder(fd: int) -> Holder:
    try:
        return Holder(**orjson.loads(os.pread(fd, 4096, 0)))
    except (orjson.JSONDecodeError, TypeError):
        return Holder()
