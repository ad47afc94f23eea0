"""daemon.log: where a daemon that `onward up` starts says what it does."""

import os
import stat
from pathlib import Path

from onward.config.places import find_places
from onward.errors import Unreadable

LOG_BYTES = 1 << 20


def log_file() -> Path:
    """Return where it is."""
    return find_places().runs_dir.parent / "daemon.log"


def open_log(log: Path) -> int:
    """Return a descriptor to add to it; it is made if it is not there, and set aside when it has grown.

    Raises:
        Unreadable: It cannot be written, or something else stands in its place.
    """
    _make_directory(log.parent)
    try:
        fd = _open(log, os.O_CREAT)
        if os.fstat(fd).st_size > LOG_BYTES:
            os.close(fd)
            log.replace(log.with_suffix(".log.1"))
            fd = _open(log, os.O_CREAT)
    except OSError as error:
        raise Unreadable(f"{log} cannot be written: {error.strerror}; move it away") from error
    os.fchmod(fd, 0o600)
    return fd


def _make_directory(directory: Path) -> None:
    for part in reversed([p for p in (directory, *directory.parents) if not p.exists()]):
        try:
            part.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            remedy = "choose another place with ONWARD_HOME or [daemon] runs_dir"
            raise Unreadable(f"the directory {part} cannot be made: {error.strerror}; {remedy}") from error


def check_log(log: Path) -> None:
    """Open it as `open_log` does, without making or changing anything; one that is not there is in order.

    Raises:
        Unreadable: As `open_log`.
    """
    try:
        os.close(_open(log, 0))
    except FileNotFoundError:
        return
    except OSError as error:
        raise Unreadable(f"{log} cannot be written: {error.strerror}") from error


def _open(log: Path, flags: int) -> int:
    # O_NONBLOCK: a FIFO in its place must not hang whoever starts a daemon.
    safe = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    fd = os.open(log, os.O_WRONLY | os.O_APPEND | flags | safe, 0o600)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(0, "it is not a regular file")
    return fd
