"""Birth of a run directory: it is there under its name when all of it is durable, or not at all. All of it blocks."""

import contextlib
import os
import secrets

from onward.errors import Conflict, OnwardError
from onward.store import disk, rundir

CRADLE = ".new-"
"""What the name of a directory begins with that is not born yet."""


def give_birth(runs_fd: int, run_id: str, line: bytes) -> None:
    """Make a run directory whose journal holds this first line.

    Raises:
        Conflict: The id exists.
        OSError: The disk did not take it; nothing is left.
    """
    cradle = f"{CRADLE}{run_id}-{secrets.token_hex(4)}"
    try:
        os.stat(run_id, dir_fd=runs_fd, follow_symlinks=False)
    except FileNotFoundError:
        pass
    else:
        raise Conflict(f"run {run_id} exists already")
    try:
        disk.make_dir(cradle, "birth.make", dir_fd=runs_fd)
        _write_first_line(runs_fd, cradle, line)
        disk.rename(cradle, run_id, "birth.rename", dir_fd=runs_fd)
    except OSError:
        # Also when only the last flush failed: who is told "not started" must not find the run at the next boot.
        for name in (cradle, run_id):
            with contextlib.suppress(OSError, OnwardError):
                disk.remove_tree(name, dir_fd=runs_fd)
        raise


def _write_first_line(runs_fd: int, cradle: str, line: bytes) -> None:
    with disk.opened_dir(cradle, dir_fd=runs_fd) as dir_fd:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(rundir.JOURNAL, flags, disk.FILE_MODE, dir_fd=dir_fd)
        try:
            disk.write_all(fd, line, "birth.write")
            disk.flush_all(fd, "birth.flush")
        finally:
            os.close(fd)
        disk.flush_all(dir_fd, "birth.entry")
