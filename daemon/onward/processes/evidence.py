"""What a call's directory shows of it: the evidence of the delivery contract. Blocking: it reads and writes files."""

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from onward.core.text import decode
from onward.errors import Unreadable
from onward.ports.process import CallExit, CallTrace, EndedBy, Trace
from onward.processes.identity import Identity, boot_id, parse_identity, parse_object
from onward.processes.launcher_kernel import lock_is_held

_OTHER_KIND = (errno.ELOOP, errno.ENOTDIR, errno.ENXIO)
_SMALL_BYTES = 64 * 1024
_HALF_BYTES = 1 << 20


class Replaced(Unreadable):
    """Something else stands in the place of evidence, a link, say: what happened to the call is unknown."""


@contextmanager
def opened(call_dir: Path) -> Iterator[int]:
    """Open the directory itself: all else is opened relative to it, so nothing in its path can be swapped under us.

    Raises:
        FileNotFoundError: There is none.
        Replaced: It is a link or a file.
        Unreadable: It cannot be opened.
    """
    try:
        fd = os.open(call_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _as_told(error, f"{str(call_dir)!r}") from error
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def opened_file(directory: int, name: str) -> Iterator[int | None]:
    """Open a regular file of ours to read; None where there is none.

    Raises:
        Replaced: It is a link, not a regular file, or someone else's.
        Unreadable: It cannot be opened.
    """
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    except FileNotFoundError:
        yield None
        return
    except OSError as error:
        raise _as_told(error, f"{name!r} of a call") from error
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            raise Replaced(f"{name!r} of a call is not a regular file of this user")
        yield fd
    finally:
        os.close(fd)


def _as_told(error: OSError, what: str) -> Unreadable:
    kind = Replaced if error.errno in _OTHER_KIND else Unreadable
    return kind(f"{what} cannot be read: {error.strerror}")


def probe(call_dir: Path) -> CallTrace:
    """Look at a call without changing anything.

    Without an `identity` the answer is `NONE`, whether or not the directory exists: a launcher may still come.

    Raises:
        Unreadable: The evidence is there but cannot be read.
    """
    try:
        with opened(call_dir) as directory:
            return _look(directory)[0]
    except FileNotFoundError:
        return CallTrace(trace=Trace.NONE)
    except Replaced:
        return CallTrace(trace=Trace.LOST)


def fence(call_dir: Path) -> CallTrace:
    """Look, and make sure that a call that has not started never will. Nothing is written where something stands.

    `FENCED` carries the boot id of the fence that stands there, this one or an older one's: where it is not that of the
    hand-over, `identity` may have been lost with the power, and the call may have run. `NONE` means that there is no
    directory, so no launcher was ever told of the call. Repeating it changes nothing.

    Raises:
        OSError: The fence could not be written (disk full).
        Unreadable: The evidence is there but cannot be read.
    """
    try:
        with opened(call_dir) as directory:
            found = _look(directory)[0]
            if found.trace is not Trace.NONE:
                return found
            _put_fence(directory)
            return _look(directory)[0]
    except FileNotFoundError:
        return CallTrace(trace=Trace.NONE)
    except Replaced:
        return CallTrace(trace=Trace.LOST)


def read_identity(call_dir: Path) -> Identity | None:
    """Return what `identity` says, None where there is nothing whole."""
    try:
        with opened(call_dir) as directory:
            return _look(directory)[1]
    except (FileNotFoundError, Replaced):
        return None


def outputs(call_dir: Path) -> tuple[bytes, bytes]:
    """Return stdout and stderr of a call, living or not: at most the first and last MiB of each; missing is empty."""
    try:
        with opened(call_dir) as directory:
            return _kept(directory, "stdout"), _kept(directory, "stderr")
    except (FileNotFoundError, Replaced):
        return b"", b""


def _kept(directory: int, name: str) -> bytes:
    with opened_file(directory, name) as file:
        if file is None:
            return b""
        size = os.fstat(file).st_size
        if size <= 2 * _HALF_BYTES:
            return os.pread(file, 2 * _HALF_BYTES, 0)
        return os.pread(file, _HALF_BYTES, 0) + os.pread(file, _HALF_BYTES, size - _HALF_BYTES)


def read_output(call_dir: Path, name: str, limit_bytes: int) -> str:
    """Return beginning and end of `stdout` or `stderr` as clean text of at most `limit_bytes` of UTF-8 (at least 256).

    Where something is missing a line between the two says how many bytes: those the launcher did not keep and those
    left out here. Works on a living call too, in bounded memory.
    """
    with suppress(FileNotFoundError), opened(call_dir) as directory, opened_file(directory, name) as file:
        if file is None:
            return ""
        stream = _read_object(directory, "exit").get(name) or _read_object(directory, f"{name}.cut")
        return _excerpt(file, stream if isinstance(stream, dict) else {}, limit_bytes)
    return ""


def _excerpt(file: int, stream: dict[str, Any], limit_bytes: int) -> str:
    size = os.fstat(file).st_size
    dropped, seam = _count(stream, "dropped"), min(_count(stream, "head"), size)
    half = (limit_bytes - 96) // 2
    if dropped:
        head_bytes, tail_bytes = min(half, seam), min(half, size - seam)
    elif size > limit_bytes:
        head_bytes = tail_bytes = half
    else:
        head_bytes, tail_bytes = size, 0
    head = _clip(decode(os.pread(file, head_bytes, 0)), half if tail_bytes else limit_bytes)
    missing = dropped + max(size - head_bytes - tail_bytes, 0)
    if not missing:
        return head
    tail = _clip(decode(os.pread(file, tail_bytes, max(size - tail_bytes, 0))), half, end=True)
    return f"{head}\n[... {missing} bytes left out ...]\n{tail}"


def _count(stream: dict[str, Any], name: str) -> int:
    value = stream.get(name)
    return value if isinstance(value, int) and value > 0 else 0


def _clip(text: str, limit_bytes: int, *, end: bool = False) -> str:
    """Shorten to `limit_bytes` of UTF-8: every invalid byte has become three."""
    raw = text.encode()
    if len(raw) <= limit_bytes:
        return text
    return (raw[-limit_bytes:] if end else raw[:limit_bytes]).decode("utf-8", "ignore")


def _look(directory: int) -> tuple[CallTrace, Identity | None]:
    with opened_file(directory, "identity") as file:
        if file is None:
            return CallTrace(trace=Trace.NONE), None
        identity = parse_identity(os.pread(file, _SMALL_BYTES, 0))
        if identity is not None and identity.fence:
            if any(_length(directory, name) for name in ("exit", "stdout", "stderr")):
                # Somebody took `identity` away, and the fence its place: what it has left says that the command ran.
                return CallTrace(trace=Trace.LOST, boot_id=identity.boot_id), identity
            return CallTrace(trace=Trace.FENCED, boot_id=identity.boot_id), identity
        pid, boot = (identity.pid, identity.boot_id) if identity else (None, None)
        if lock_is_held(file):
            return CallTrace(trace=Trace.ALIVE, pid=pid, boot_id=boot), identity
    # Only now: an exit record read before the lock was seen free could be missing though the call ended well.
    found = _read_exit(directory)
    trace = Trace.LOST if found is None else Trace.EXITED
    return CallTrace(trace=trace, exit=found, pid=pid, boot_id=boot), identity


def _read_exit(directory: int) -> CallExit | None:
    found = _read_object(directory, "exit")
    try:
        streams = {name: found[name] for name in ("stdout", "stderr")}
        return CallExit(
            code=int(found["code"]),
            ended_by=EndedBy(found["ended_by"]),
            duration_s=float(found["duration_s"]),
            intact=all(_length(directory, name) == stream["length"] for name, stream in streams.items()),
            stdout_dropped=int(streams["stdout"]["dropped"]),
            stderr_dropped=int(streams["stderr"]["dropped"]),
        )
    except (KeyError, TypeError, ValueError):
        return None


def _read_object(directory: int, name: str) -> dict[str, Any]:
    with opened_file(directory, name) as file:
        return {} if file is None else parse_object(os.pread(file, _SMALL_BYTES, 0))


def _length(directory: int, name: str) -> int | None:
    with opened_file(directory, name) as file:
        return None if file is None else os.fstat(file).st_size


def _put_fence(directory: int) -> None:
    """Take the place of `identity` unless it is taken. The link decides, as it does for the launcher."""
    temp = f"fence.{os.getpid()}.{secrets.token_hex(4)}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(temp, flags, 0o600, dir_fd=directory)
    try:
        text = f'{{"protocol": 1, "fence": true, "boot_id": "{boot_id()}", "pid": {os.getpid()}}}\n'
        os.write(file, text.encode())
        os.fsync(file)
        with suppress(FileExistsError):
            os.link(temp, "identity", src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
    finally:
        os.close(file)
        os.unlink(temp, dir_fd=directory)
    os.fsync(directory)
