"""The one place where something is made durable: each step can fail, stop or die at a named fault point.

A point is `<what>.<step>`: `journal.write.before` is hit before the bytes go out, `journal.write.after` when they are
written, and so on. All errors are turned into `StoreError` by `as_store_error`, with the path and what to do.
"""

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator

from onward.errors import DiskFull, NotFound, StoreError, Unreadable
from onward.ports.store import is_full
from onward.testing import faults

DIR_MODE = 0o700
FILE_MODE = 0o600
_SAFE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


def as_store_error(error: OSError, what: str) -> StoreError:
    """Return the error that says what could not be done, and why."""
    if is_full(error):
        return DiskFull(f"{what}: no space left; free some, nothing is lost meanwhile")
    return StoreError(f"{what}: {error.strerror or error}")


def open_dir(path: str, *, dir_fd: int | None = None) -> int:
    """Return a descriptor of a real directory (a link in its place is refused).

    Raises:
        NotFound, Unreadable: As they say.
    """
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dir_fd)
    except FileNotFoundError:
        raise NotFound(f"{path!r} is not there") from None
    except OSError as error:
        raise Unreadable(f"{path!r} cannot be opened as a directory: {error.strerror}") from error


@contextlib.contextmanager
def opened_dir(*names: str, dir_fd: int) -> Iterator[int]:
    """Open the directory that `names` lead to from `dir_fd`, each of them a real directory; closed after the block.

    Raises:
        NotFound, Unreadable: As `open_dir`.
    """
    fd = os.dup(dir_fd)
    try:
        for name in names:
            outer, fd = fd, open_dir(name, dir_fd=fd)
            os.close(outer)
        yield fd
    finally:
        os.close(fd)


def open_regular(name: str, flags: int = os.O_RDONLY, *, dir_fd: int) -> int:
    """Return a descriptor of a regular file with one link; anything planted in its place is refused.

    Raises:
        NotFound, Unreadable: As they say.
    """
    try:
        fd = os.open(name, flags | _SAFE, FILE_MODE, dir_fd=dir_fd)
    except FileNotFoundError:
        raise NotFound(f"{name!r} is not there") from None
    except OSError as error:
        raise Unreadable(f"{name!r} cannot be opened: {error.strerror}") from error
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
        os.close(fd)
        raise Unreadable(f"{name!r} is not a regular file with one name")
    return fd


def read_file(name: str, *, dir_fd: int, limit: int = 64 * 1024 * 1024) -> bytes:
    """Return a whole regular file.

    Raises:
        NotFound, Unreadable: As they say; also when it is longer than `limit` bytes.
    """
    fd = open_regular(name, dir_fd=dir_fd)
    try:
        size = os.fstat(fd).st_size
        if size > limit:
            raise Unreadable(f"{name!r} has {size} bytes, more than the {limit} allowed")
        parts = []
        while chunk := os.read(fd, size + 1):
            parts.append(chunk)
        return b"".join(parts)
    except OSError as error:
        raise Unreadable(f"{name!r} cannot be read: {error.strerror}") from error
    finally:
        os.close(fd)


def write_all(fd: int, data: bytes, point: str) -> None:
    """Write all of `data`; a write that is cut short is an error (the caller undoes it)."""
    action = faults.hit(f"{point}.before")
    written = os.write(fd, data[: len(data) // 2] if action == "short" else data)
    if written != len(data):
        raise OSError(errno.ENOSPC, f"only {written} of {len(data)} bytes were written")
    faults.hit(f"{point}.after")


def flush_data(fd: int, point: str) -> None:
    """Fdatasync."""
    faults.hit(f"{point}.before")
    os.fdatasync(fd)
    faults.hit(f"{point}.after")


def flush_all(fd: int, point: str) -> None:
    """Fsync a file or a directory (its entries)."""
    faults.hit(f"{point}.before")
    os.fsync(fd)
    faults.hit(f"{point}.after")


def make_dir(name: str, point: str, *, dir_fd: int) -> None:
    """Make a directory durably: its entry in the parent is flushed."""
    faults.hit(f"{point}.before")
    os.mkdir(name, DIR_MODE, dir_fd=dir_fd)
    os.fsync(dir_fd)
    faults.hit(f"{point}.after")


def rename(source: str, target: str, point: str, *, dir_fd: int) -> None:
    """Rename within one directory, durably."""
    faults.hit(f"{point}.before")
    os.rename(source, target, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    faults.hit(f"{point}.unsynced")
    os.fsync(dir_fd)
    faults.hit(f"{point}.after")


def replace_file(name: str, data: bytes, point: str, *, dir_fd: int) -> None:
    """Put `data` at `name` so that it is whole or the old one stands, after a power cut too.

    Raises:
        OSError: The old file stands; nothing is left over.
    """
    temporary = f".{name}.{secrets.token_hex(6)}.tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE, FILE_MODE, dir_fd=dir_fd)
    try:
        try:
            write_all(fd, data, f"{point}.write")
            flush_all(fd, f"{point}.flush")
        finally:
            os.close(fd)
        rename(temporary, name, f"{point}.rename", dir_fd=dir_fd)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=dir_fd)
        raise


def remove_leftovers(dir_fd: int) -> None:
    """Remove the temporary files that a `replace_file` of another process left here. What cannot be removed stays."""
    for name in os.listdir(dir_fd):
        if name.startswith(".") and name.endswith(".tmp"):
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=dir_fd)


def make_dirs(path: str) -> None:
    """Make a directory and those above it, durably; one that is there is left as it is."""
    if not os.path.isdir(path):
        above = os.path.dirname(path)
        make_dirs(above)
        fd = os.open(above, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with contextlib.suppress(FileExistsError):
                make_dir(os.path.basename(path), "runs.make", dir_fd=fd)
        finally:
            os.close(fd)


def remove_tree(name: str, *, dir_fd: int) -> None:
    """Remove a directory and what is in it; links are removed, never followed.

    What is missing is no error, for somebody else may be removing the same.
    """
    try:
        fd = open_dir(name, dir_fd=dir_fd)
    except NotFound:
        return
    except Unreadable:
        _remove(os.unlink, name, dir_fd)
        return
    try:
        with os.scandir(fd) as entries:
            found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        for entry_name, is_dir in found:
            if is_dir:
                remove_tree(entry_name, dir_fd=fd)
            else:
                _remove(os.unlink, entry_name, fd)
    finally:
        os.close(fd)
    _remove(os.rmdir, name, dir_fd)


def _remove(remove: Callable[..., None], name: str, dir_fd: int) -> None:
    faults.hit("remove.before")
    with contextlib.suppress(FileNotFoundError):
        remove(name, dir_fd=dir_fd)


def read_lines(fd: int, offset: int = 0, *, limit: int = 32 * 1024 * 1024) -> Iterator[bytes]:
    """Yield the lines of a file from `offset`, newline included; the last one may lack it.

    Memory is bounded: of a line longer than `limit` bytes the pieces are yielded one by one.
    """
    with open(fd, "rb", buffering=1 << 20, closefd=False) as file:
        file.seek(offset)
        while line := file.readline(limit):
            yield line
