"""Notes what a power cut would spare: how far each file was flushed, and which names in which directory.

Stands around the calls of `os` that change files, in the daemon and (as a program) in its launchers, and appends one
JSON line to the notes after each that went well. `power.py` reads them. Standard library only.
"""

import json
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_open, _write, _close, _stat, _fstat = os.open, os.write, os.close, os.stat, os.fstat
_read = os.read

Wrapped = Callable[..., Any]


class Recorder:
    """Appends to one file of notes; opened anew each time, as a launcher closes whatever it finds open."""

    def __init__(self, notes: str) -> None:
        self.notes = notes
        self.saved = 0

    def note(self, what: str, **members: Any) -> None:
        fd = _open(self.notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        _write(fd, json.dumps({"what": what, **members}).encode() + b"\n")
        _close(fd)

    def opens(self, real: Wrapped) -> Wrapped:
        def open_(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> Any:
            if not flags & os.O_CREAT:
                return real(path, flags, mode, dir_fd=dir_fd)
            is_new = inode(path, dir_fd) is None
            fd = real(path, flags, mode, dir_fd=dir_fd)
            if is_new:
                self.note("made", **place(path, dir_fd), inode=_fstat(fd).st_ino)
            return fd

        return open_

    def makes(self, real: Wrapped) -> Wrapped:
        def mkdir(path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
            real(path, mode, dir_fd=dir_fd)
            self.note("made", **place(path, dir_fd), inode=inode(path, dir_fd))

        return mkdir

    def links(self, real: Wrapped) -> Wrapped:
        def link(
            source: Any,
            target: Any,
            *,
            src_dir_fd: int | None = None,
            dst_dir_fd: int | None = None,
            follow_symlinks: bool = True,
        ) -> None:
            real(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd, follow_symlinks=follow_symlinks)
            self.note("linked", **place(target, dst_dir_fd), inode=inode(target, dst_dir_fd))

        return link

    def renames(self, real: Wrapped) -> Wrapped:
        def rename(source: Any, target: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> None:
            old = self.save(target, dst_dir_fd)
            origin = place(source, src_dir_fd)
            real(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
            self.note(
                "renamed",
                **place(target, dst_dir_fd),
                inode=inode(target, dst_dir_fd),
                source=origin["name"],
                source_directory=origin["directory"],
                old=old,
            )

        return rename

    def removes(self, real: Wrapped) -> Wrapped:
        def remove(path: Any, *, dir_fd: int | None = None) -> None:
            old = self.save(path, dir_fd)
            gone = {**place(path, dir_fd), "inode": inode(path, dir_fd), "old": old}
            real(path, dir_fd=dir_fd)
            self.note("removed", **gone)

        return remove

    def flushes(self, real: Wrapped) -> Wrapped:
        def flush(fd: int) -> None:
            begun = _fstat(fd)  # what is written while it runs may or may not be covered
            real(fd)
            self.note("flushed", inode=begun.st_ino, size=begun.st_size, is_dir=stat.S_ISDIR(begun.st_mode))

        return flush

    def truncates(self, real: Wrapped) -> Wrapped:
        def ftruncate(fd: int, length: int) -> None:
            real(fd, length)
            self.note("truncated", inode=_fstat(fd).st_ino, size=length)

        return ftruncate

    def save(self, path: Any, dir_fd: int | None) -> dict[str, Any] | None:
        """Copy a file that is about to lose its name, for it may come back."""
        try:
            fd = _open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=dir_fd)
        except OSError:
            return None
        try:
            found = _fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                return None
            self.saved += 1
            copy = f"{self.notes}.{os.getpid()}.{self.saved}"
            copy_fd = _open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            while data := _read(fd, 1 << 20):
                _write(copy_fd, data)
            _close(copy_fd)
            return {"copy": copy, "inode": found.st_ino, "is_last": found.st_nlink == 1}
        finally:
            _close(fd)


def place(path: Any, dir_fd: int | None) -> dict[str, Any]:
    """Return the inode of the directory that holds `path`, and the name there."""
    directory, name = os.path.split(os.fsdecode(path))
    found = _stat(directory or ".", dir_fd=dir_fd) if directory or dir_fd is None else _fstat(dir_fd)
    return {"directory": found.st_ino, "name": name}


def inode(path: Any, dir_fd: int | None) -> int | None:
    try:
        return _stat(path, dir_fd=dir_fd, follow_symlinks=False).st_ino
    except OSError:
        return None


def install(notes: str) -> None:
    """Note from now on what this process does to files."""
    recorder = Recorder(notes)
    for name, wrap in {
        "open": recorder.opens,
        "mkdir": recorder.makes,
        "link": recorder.links,
        "rename": recorder.renames,
        "unlink": recorder.removes,
        "rmdir": recorder.removes,
        "fsync": recorder.flushes,
        "fdatasync": recorder.flushes,
        "ftruncate": recorder.truncates,
    }.items():
        setattr(os, name, wrap(getattr(os, name)))


def launcher_python(notes: Path) -> str:
    """Return a program to start launchers with, in place of the interpreter: it installs the recorder first."""
    program = notes.with_suffix(".sh")
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {Path(__file__).absolute()} {notes} "$@"\n')
    program.chmod(0o700)
    return str(program)


if __name__ == "__main__":
    import runpy

    install(sys.argv[1])
    runpy.run_path(sys.argv[-1], run_name="__main__")
