"""What is in a directory and below it."""
# ruff: noqa: D417  # the Args are what the model is told

import os
import stat
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from heapq import nsmallest

from onward.core.text import EXCERPT_BYTES
from onward.core.vocabulary import Effect
from onward.native.tools.definition import ToolError, tool
from onward.native.tools.files import explained, located, shown
from onward.ports.tool import ToolContext, ToolResult

MAX_ENTRIES = 1000
TEXT_BYTES = EXCERPT_BYTES - 512  # room for the notes
SECONDS = 10.0
NOT_ENTERED = frozenset({".git"})


@dataclass(slots=True)
class _Listing:
    deadline: float
    names: list[str] = field(default_factory=list)
    size_bytes: int = 0
    unreadable: int = 0
    cut: str | None = None


@tool(effect=Effect.READ)
def list_files(context: ToolContext, *, path: str = ".") -> ToolResult:
    """List the files in a directory and everything below it, directories with a `/` at the end.

    What is nearest comes first where not all of it can be shown. `.git` and symbolic links are named but not entered.

    Args:
        path: The directory, relative to the workspace or absolute.
    """
    name = located(context, path)
    with explained("list", name):
        if not stat.S_ISDIR(os.stat(name).st_mode):
            raise ToolError(f"{shown(name)} is not a directory")
        os.close(os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))  # its own permissions are an error
    listing = _Listing(deadline=time.monotonic() + SECONDS)
    _walk(listing, name, "" if path == "." else os.path.join(path, ""))
    return ToolResult(text=_text(listing))


def _walk(listing: _Listing, top: str, prefix: str) -> None:
    """Level by level, so that a deep tree does not hide its neighbours."""
    waiting = deque([(top, prefix)])
    while waiting and listing.cut is None:
        directory, before = waiting.popleft()
        try:
            with os.scandir(directory) as found:
                # One more than can be shown, so that a cut is noticed; a directory of millions is not kept in memory.
                entries = nsmallest(MAX_ENTRIES + 1, _in_time(listing, found))
        except OSError:
            listing.unreadable += 1
            continue
        for name, is_directory in entries:
            if not _add(listing, shown(before + name) + ("/" if is_directory else "")):
                break
            if is_directory and name not in NOT_ENTERED:
                waiting.append((os.path.join(directory, name), f"{before}{name}/"))


def _in_time(listing: _Listing, found: Iterable[os.DirEntry[str]]) -> Iterator[tuple[str, bool]]:
    for entry in found:
        if time.monotonic() > listing.deadline:
            listing.cut = f"stopped after {SECONDS:.0f} s"
            return
        yield entry.name, entry.is_dir(follow_symlinks=False)


def _add(listing: _Listing, line: str) -> bool:
    size = len(line.encode()) + 1
    if len(listing.names) >= MAX_ENTRIES or listing.size_bytes + size > TEXT_BYTES:
        listing.cut = f"only the nearest {len(listing.names)} are shown"
        return False
    listing.names.append(line)
    listing.size_bytes += size
    return True


def _text(listing: _Listing) -> str:
    notes = [] if listing.names or listing.cut else ["[the directory is empty]"]
    if listing.cut:
        notes.append(f"[there is more: {listing.cut}; list a directory below, or use shell]")
    if listing.unreadable:
        notes.append(f"[{listing.unreadable} directories could not be read]")
    return "\n".join([*sorted(listing.names), *notes])
