"""A power cut: takes away from a directory what was not flushed, as the notes of `recorder.py` tell it.

What a file system may leave is wide; these are its three corners. A strict one is assumed throughout: a file's flush
saves its bytes, not its name, and a name is safe once its directory was flushed (ext4 does more, others do not).
"""

import json
import os
import shutil
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

Note = dict[str, Any]


class Loss(StrEnum):
    """What of the unflushed is gone."""

    BYTES = "bytes"
    """Each file ends where it was flushed."""
    ZEROS = "zeros"
    """Each file has its length, but holds zeros behind what was flushed (delayed allocation)."""
    NAMES = "names"
    """Names that were made, replaced or removed since the directory's flush are as they were; bytes as above."""


@dataclass(slots=True)
class Disk:
    """What is durable, by inode."""

    flushed: dict[int, int] = field(default_factory=dict)
    """Of each file that was made or flushed: how many of its bytes are durable."""
    pending: list[Note] = field(default_factory=list)
    """Changes of names whose directory was not flushed since, oldest first."""

    @classmethod
    def read(cls, notes: Path) -> "Disk":
        found = cls()
        for line in notes.read_bytes().splitlines() if notes.exists() else ():
            found.take(json.loads(line))
        return found

    def take(self, note: Note) -> None:
        match note["what"]:
            case "flushed" if note["is_dir"]:
                self.pending = [change for change in self.pending if change["directory"] != note["inode"]]
            case "flushed":
                self.flushed[note["inode"]] = note["size"]
            case "truncated":
                self.flushed[note["inode"]] = min(self.flushed.get(note["inode"], note["size"]), note["size"])
            case "made":
                self.flushed[note["inode"]] = 0
                # What had this inode before is gone for good, with all names that were in it.
                self.pending = [change for change in self.pending if change["directory"] != note["inode"]]
                self.pending.append(note)
            case _:
                if old := note.get("old"):
                    old["durable"] = self.flushed.get(old["inode"])
                    if old["is_last"]:
                        self.flushed.pop(old["inode"], None)  # another file may get this inode
                self.pending.append(note)


def cut_power(home: Path, notes: Path, loss: Loss) -> None:
    """Change the runs and the workspace under `home` to what a power cut could have left of them.

    Whoever still writes there has to be killed before. Afterwards all that is left is durable, and the notes are empty.
    Files that the daemon and its launchers did not write are as they were.
    """
    found = Disk.read(notes)
    if loss is Loss.NAMES:
        undo(home, found)
    for path in [*home.glob("runs/**/*"), *home.glob("work/**/*")]:
        size, kept = path.stat().st_size, found.flushed.get(path.stat().st_ino)
        if path.is_file() and kept is not None and kept < size:
            os.truncate(path, kept)
            if loss is Loss.ZEROS:
                os.truncate(path, size)
    notes.unlink(missing_ok=True)


def undo(home: Path, found: Disk) -> None:
    """Take back every change of a name that was not flushed, the newest first."""
    directories = {path.stat().st_ino: path for path in [home, *home.rglob("*")] if path.is_dir()}
    for change in reversed(found.pending):
        directory = directories.get(change["directory"])
        if directory is None:
            continue
        path = directory / change["name"]
        match change["what"]:
            case "made" | "linked" if inode(path) == change["inode"]:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            case "renamed" if inode(path) == change["inode"]:
                path.rename(directories[change["source_directory"]] / change["source"])
                bring_back(path, change["old"], found)
            case "removed" if not path.exists():
                if change["old"] is None:
                    path.mkdir(mode=0o700)
                    directories[change["inode"]] = path
                else:
                    bring_back(path, change["old"], found)


def bring_back(path: Path, old: Note | None, found: Disk) -> None:
    """Put the file back that had this name before; its bytes are as durable as they were."""
    if old is None:
        return
    data = Path(old["copy"]).read_bytes()
    path.write_bytes(data)
    path.chmod(0o600)
    if old["durable"] is not None:
        found.flushed[path.stat().st_ino] = old["durable"]


def inode(path: Path) -> int | None:
    return path.lstat().st_ino if path.exists() else None
