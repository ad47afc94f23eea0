"""Files for the tools: paths as the model gives them, regular files only, and writes that last."""

import errno
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from onward.core.text import clean
from onward.native.tools.definition import ToolError
from onward.ports.tool import ToolContext
from onward.testing import faults

NEW_FILE_MODE = 0o644  # 0666 without umask 022, whatever the daemon's own umask
NEW_DIRECTORY_MODE = 0o755

# Calls of one batch run at the same time: two edits of one file must not both start from the same old content.
_FILE_LOCKS = tuple(threading.Lock() for _ in range(64))


def located(context: ToolContext, path: str) -> str:
    """Return the absolute path that the model means: relative to the workspace, `~` is the command's HOME."""
    return resolved(path, context.workspace, context.env.get("HOME"))


def resolved(path: str, workspace: Path, home: str | None) -> str:
    """Return the absolute path that the model means.

    Raises:
        ToolError: The path is empty.
    """
    if not path:
        raise ToolError("the path is empty")
    if home and (path == "~" or path.startswith("~/")):
        path = home + path[1:]
    return str(workspace / path)


def shown(path: str) -> str:
    """Return a file's name as one line of valid text."""
    return clean(path).replace("\n", "\\n").replace("\r", "\\r")


@contextmanager
def explained(act: str, path: str) -> Iterator[None]:
    """Turn an OSError into a ToolError: `cannot <act> <path>: <why>`."""
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        raise ToolError(f"cannot {act} {shown(path)}: {why}") from error


@contextmanager
def held(path: str) -> Iterator[str]:
    """Yield the file that `path` leads to, links followed; nobody else in this daemon writes it meanwhile."""
    target = os.path.realpath(path)
    with _FILE_LOCKS[hash(target) % len(_FILE_LOCKS)]:
        yield target


def open_regular(path: str) -> int:
    """Open a regular file for reading. Never waits for a writer and never touches a device.

    Raises:
        ToolError: It is something else.
        OSError: It cannot be opened.
    """
    _check_regular(path, os.stat(path).st_mode)
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        _check_regular(path, os.fstat(fd).st_mode)  # it may have been replaced in between
    except BaseException:
        os.close(fd)
        raise
    return fd


def _check_regular(path: str, mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise ToolError(f"{shown(path)} is a directory; list_files shows what is in it")
    if not stat.S_ISREG(mode):
        raise ToolError(f"{shown(path)} is not a regular file ({_kind(mode)})")


def _kind(mode: int) -> str:
    kinds = {stat.S_IFIFO: "FIFO", stat.S_IFSOCK: "socket", stat.S_IFCHR: "device", stat.S_IFBLK: "device"}
    return kinds.get(stat.S_IFMT(mode), "special file")


def write_durably(target: str, content: bytes, temp_name: str) -> None:
    """Replace or make the regular file `target` so that it holds either the old or the new content, and lasts.

    When this returns the new content survives a power cut. Mode and, where allowed, owner of an existing file are kept.

    Raises:
        ToolError: It is no regular file, or may not be written; or it was replaced but may not last.
        OSError: Nothing was changed.
    """
    directory = os.path.dirname(target)
    before = _replaceable(target)
    make_directories(directory)
    temp = os.path.join(directory, temp_name)
    faults.hit("tools.write.before_temp")
    fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            _fill(fd, content, before)
        finally:
            os.close(fd)
        faults.hit("tools.write.before_rename")
        os.rename(temp, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(temp)
        raise
    try:
        faults.hit("tools.write.after_rename")
        flush_directory(directory)
        faults.hit("tools.write.done")
    except OSError as error:
        raise ToolError(f"{shown(target)} was written, but a power cut may undo that: {error.strerror}") from error


def _replaceable(target: str) -> os.stat_result | None:
    try:
        found = os.stat(target)
    except FileNotFoundError:
        return None
    _check_regular(target, found.st_mode)
    # A rename would get round the file's own permissions.
    if not os.access(target, os.W_OK, effective_ids=True):
        raise PermissionError(errno.EACCES, "the file is read-only")
    return found


def _fill(fd: int, content: bytes, before: os.stat_result | None) -> None:
    view = memoryview(content)
    if faults.hit("tools.write.content") == "short":
        view = view[os.write(fd, view[: len(view) // 2]) :]
    while view:
        view = view[os.write(fd, view) :]
    if before is not None:
        with suppress(PermissionError):
            os.fchown(fd, before.st_uid, before.st_gid)
    os.fchmod(fd, NEW_FILE_MODE if before is None else before.st_mode & 0o777)
    faults.hit("tools.write.before_flush")
    os.fsync(fd)


def make_directories(directory: str) -> None:
    """Make a directory and its parents so that they last."""
    missing = []
    while not os.path.isdir(directory):
        missing.append(directory)
        directory = os.path.dirname(directory)
    for made in reversed(missing):
        with suppress(FileExistsError):  # by another call of the batch; a file in its place fails at the next step
            os.mkdir(made, NEW_DIRECTORY_MODE)
            os.chmod(made, NEW_DIRECTORY_MODE)
        flush_directory(os.path.dirname(made))


def flush_directory(directory: str) -> None:
    """Make the names in a directory last."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
