"""The runs directory itself, apart from the runs in it: made ready and locked, its id, its HOLD, and its machine.

All of it blocks.
"""

import contextlib
import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path

from onward.errors import NotFound, Refused, Unreadable
from onward.store import disk, lock, mounts

LOCK = ".lock"
INSTANCE = ".instance"
HOLD = "HOLD"
MACHINE_ID = Path("/etc/machine-id")
CONTAINERS = ("/.dockerenv", "/run/.containerenv")
_INSTANCE = re.compile("[0-9a-f]{32}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A runs directory whose lock this process holds. Where it was only locked, its ids are not known: empty."""

    path: Path
    fd: int
    held: lock.RunsLock
    instance: str = ""
    machine_id: str = ""


def make_ready(path: Path, holder: lock.Holder, *, allow_network_fs: bool) -> Opened:
    """Make the directory, if it is missing, and take its lock, before anything in it is read.

    Raises:
        Held: Another daemon holds it.
        Refused: It lies on a network file system, or it is not ours.
        OSError, StoreError: It cannot be made or opened.
    """
    disk.make_dirs(os.path.abspath(path))
    kind = mounts.network_file_system(path)
    if kind and not allow_network_fs:
        raise Refused(
            f"{str(path)!r} lies on {kind}, where locks and flushes cannot be relied on; use a local disk, or set "
            "daemon.allow_network_fs = true"
        )
    found = path.stat()
    if found.st_uid != os.geteuid():
        raise Refused(f"{str(path)!r} belongs to user {found.st_uid}, not to {os.geteuid()}; it must be ours alone")
    if found.st_mode & 0o077:
        path.chmod(disk.DIR_MODE)
    with contextlib.ExitStack() as undo:  # who tries again must not find the lock held by a descriptor left over
        held = lock.take(str(path / LOCK), holder)
        undo.callback(held.release)
        fd = disk.open_dir(str(path))
        undo.callback(os.close, fd)
        opened = Opened(path=path, fd=fd, held=held, instance=_instance(fd), machine_id=machine_id())
        undo.pop_all()
    return opened


def take_at_once(path: Path, holder: lock.Holder) -> Opened:
    """Lock a directory that is there, without making it ready or tidy.

    Raises:
        Refused: A daemon holds it.
        OSError, NotFound, Unreadable: It cannot be written, or is not there.
    """
    fd = disk.open_dir(str(path))
    try:
        return Opened(path=path, fd=fd, held=lock.take(str(path / LOCK), holder))
    except BaseException:
        os.close(fd)
        raise


def new_instance(fd: int) -> str:
    """Give the directory another id, durably, and return it."""
    text = secrets.token_hex(16)
    disk.replace_file(INSTANCE, text.encode() + b"\n", "instance", dir_fd=fd)
    return text


def hold_in(fd: int) -> str | None:
    """Return what stands in HOLD; whatever is there under that name holds the runs."""
    try:
        return disk.read_file(HOLD, dir_fd=fd, limit=4096).decode("utf-8", "replace").strip()
    except NotFound:
        return None
    except Unreadable as error:
        return str(error)


def set_hold(fd: int, why: str | None) -> None:
    """Write HOLD, durably, or (None) remove it. Idempotent."""
    if why is not None:
        disk.replace_file(HOLD, f"{why}\n".encode(), "hold", dir_fd=fd)
        return
    with contextlib.suppress(FileNotFoundError):
        os.unlink(HOLD, dir_fd=fd)
    disk.flush_all(fd, "hold.removed")


def _instance(fd: int) -> str:
    try:
        text = disk.read_file(INSTANCE, dir_fd=fd, limit=4096).decode("ascii", "replace").strip()
    except NotFound:
        text = ""
    return text if _INSTANCE.fullmatch(text) else new_instance(fd)


def machine_id() -> str:
    """Return the id of this machine; empty in a container, which gets another one whenever it is made anew."""
    if any(os.path.exists(mark) for mark in CONTAINERS):
        return ""
    try:
        text = MACHINE_ID.read_text().strip()
    except OSError:
        return ""
    return "" if text == "uninitialized" else text
