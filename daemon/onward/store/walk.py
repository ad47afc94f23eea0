"""The boot walk: what each run directory is, without reading its journal. All of it blocks."""

import contextlib
import os

from onward.core.ids import is_run_id
from onward.core.records import Json
from onward.errors import OnwardError
from onward.ports.store import Listed
from onward.store import disk, rundir
from onward.store.births import CRADLE

GONE = ".gone-"
"""What the name of a directory begins with that is being removed."""


def walk(runs_fd: int) -> list[Listed]:
    """List the runs; the leftovers of births and deaths that did not finish are removed, where they can be."""
    found: list[Listed] = []
    disk.remove_leftovers(runs_fd)
    with os.scandir(runs_fd) as entries:
        names = [(entry.name, entry.is_dir(follow_symlinks=False), entry.is_symlink()) for entry in entries]
    for name, is_dir, is_link in names:
        if is_dir and name.startswith((CRADLE, GONE)):
            with contextlib.suppress(OSError, OnwardError):
                disk.remove_tree(name, dir_fd=runs_fd)
        elif is_run_id(name) and is_dir:
            found.append(_listed(runs_fd, name))
        elif is_run_id(name) and is_link:
            found.append(Listed(run_id=name, index=None, problem="a link stands in place of the run directory"))
    return found


def _listed(runs_fd: int, name: str) -> Listed:
    try:
        size = os.stat(f"{name}/{rundir.JOURNAL}", dir_fd=runs_fd, follow_symlinks=False).st_size
    except FileNotFoundError:
        return Listed(run_id=name, index=None, problem="journal.jsonl is missing")
    except OSError as error:
        return Listed(run_id=name, index=None, problem=f"journal.jsonl cannot be looked at: {error.strerror}")
    index = rundir.read_index(runs_fd, name)
    if index is None or index["journal"]["bytes"] != size:
        return Listed(run_id=name, index=None, stale_index=index)
    questions = _questions(runs_fd, name, index)
    if questions is None:
        return Listed(run_id=name, index=None, stale_index=index)
    return Listed(run_id=name, index=index, stale_index=index, questions=tuple(questions))


def _questions(runs_fd: int, name: str, index: Json) -> list[Json] | None:
    """Return the open questions that the index counts; None where they are not listed as it says."""
    if not index.get("questions"):
        return []
    questions = rundir.read_questions(runs_fd, name, index["journal"]["seq"])
    if questions is None or len(questions) != index["questions"]:
        return None  # whoever wrote it, it is not the list that the index speaks of
    return questions
