"""Reading configuration files, which are code: what somebody else could have written is refused."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

from onward.errors import BadConfiguration, Unreadable

MAX_BYTES = 1 << 20


def read_trusted(path: Path) -> str:
    """Return the text of a configuration file that only its owner (this user or root) can have written.

    Raises:
        FileNotFoundError: There is no such file.
        BadConfiguration: It is linked, writable by others, foreign, not a regular file, too long or not UTF-8.
        Unreadable: It is there, but the system does not let us read it.
    """
    try:
        # O_NONBLOCK: a FIFO in its place must not hang the daemon.
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        if path.is_symlink():
            raise BadConfiguration(_linked(path)) from None
        raise
    except OSError as error:
        if path.is_symlink():
            raise BadConfiguration(_linked(path)) from error
        raise Unreadable(f"{path} cannot be read: {error.strerror}") from error
    try:
        _check(path, os.fstat(fd), stat.S_ISREG, "a regular file")
        data = _read(fd)
    finally:
        os.close(fd)
    return _text(path, data)


def read_shipped(path: Path) -> str:
    """Return the text of a file of the installation, which is trusted as much as the code beside it."""
    return _text(path, path.read_bytes())


def check_directory(path: Path) -> None:
    """Refuse a configuration directory in which somebody else can put files.

    Raises:
        FileNotFoundError: There is no such directory.
        BadConfiguration: It is linked, writable by others, foreign or not a directory.
    """
    found = os.lstat(path)
    if stat.S_ISLNK(found.st_mode):
        raise BadConfiguration(_linked(path))
    _check(path, found, stat.S_ISDIR, "a directory")


def _check(path: Path, found: os.stat_result, is_kind: Callable[[int], bool], kind: str) -> None:
    if not is_kind(found.st_mode):
        raise BadConfiguration(f"{path} is not {kind}; move it away")
    if found.st_uid not in (0, os.geteuid()):
        raise BadConfiguration(
            f"{path} is another user's (uid {found.st_uid}) and is refused: chown it to root or uid {os.geteuid()}"
        )
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise BadConfiguration(f"{path} can be written by others and is refused: chmod go-w {path}")


def _read(fd: int) -> bytes:
    with open(fd, "rb", closefd=False) as file:
        return file.read(MAX_BYTES + 1)


def _text(path: Path, data: bytes) -> str:
    if len(data) > MAX_BYTES:
        raise BadConfiguration(f"{path} is longer than {MAX_BYTES} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadConfiguration(f"{path}:{line}: not UTF-8 text; save it as UTF-8") from error


def _linked(path: Path) -> str:
    return f"{path} is a symbolic link and is refused: put the file itself there"
