"""Reading a text file in pieces that a model can take."""
# ruff: noqa: D417  # the Args are what the model is told

import os
from dataclasses import dataclass, field
from io import BufferedReader
from typing import Annotated

from annotated_types import Ge, Gt

from onward.core.text import EXCERPT_BYTES, decode
from onward.core.vocabulary import Effect
from onward.native.tools.definition import ToolError, tool
from onward.native.tools.files import explained, located, open_regular, shown
from onward.ports.tool import ToolContext, ToolResult

TEXT_BYTES = EXCERPT_BYTES - 512  # room for the line that says how to read on
MAX_PASSED_BYTES = 4 << 30
_PIECE = 1 << 20


@tool(effect=Effect.READ)
def read_file(
    context: ToolContext, *, path: str, offset: Annotated[int, Ge(0)] = 0, limit: Annotated[int, Gt(0)] | None = None
) -> ToolResult:
    """Read a text file, at most 64 KiB of it at once; when there is more, the last line says how to read on.

    Args:
        path: The file, relative to the workspace or absolute.
        offset: How many lines to skip.
        limit: How many lines to read at most.
    """
    name = located(context, path)
    with explained("read", name), os.fdopen(open_regular(name), "rb") as file:
        if b"\x00" in file.peek(8192)[:8192]:
            size = os.fstat(file.fileno()).st_size
            raise ToolError(f"{shown(name)} is a binary file ({size} bytes); use shell to look into it")
        skipped = _skip(file, offset)
        if skipped < offset or (offset and not file.peek(1)):
            raise ToolError(f"{shown(name)} has only {skipped} lines, there is nothing from offset {offset} on")
        page = _read(file, limit)
        return ToolResult(text=_text(page, offset, at_end=not page.more and not file.peek(1)))


@dataclass(slots=True)
class _Page:
    lines: list[str] = field(default_factory=list)
    size_bytes: int = 0
    more: bool = False
    """Whether a line was read that did not fit any more."""
    cut: int | None = None
    """How many bytes the only line has, when it was too long to be shown whole."""


def _skip(file: BufferedReader, lines: int) -> int:
    skipped = passed = 0
    while skipped < lines and (length := _pass_line(file)):
        passed += length
        if passed > MAX_PASSED_BYTES:
            raise ToolError(f"offset {lines} is too far into the file; use shell, for example sed -n")
        skipped += 1
    return skipped


def _pass_line(file: BufferedReader) -> int:
    """Read to the end of the line and return how many bytes that were; 0 at the end of the file."""
    passed = 0
    while piece := file.readline(_PIECE):
        passed += len(piece)
        if piece.endswith(b"\n") or passed > MAX_PASSED_BYTES:
            break
    return passed


def _read(file: BufferedReader, limit: int | None) -> _Page:
    page = _Page()
    while limit is None or len(page.lines) < limit:
        raw = file.readline(TEXT_BYTES + 1)
        # Measured as it will be sent: a byte that is no UTF-8 takes three there.
        line = decode(raw)
        size = len(line.encode())
        if not raw:
            break
        if page.size_bytes + size <= TEXT_BYTES:
            page.lines.append(line)
            page.size_bytes += size
            continue
        if page.lines:
            page.more = True
            break
        page.lines.append(line.encode()[:TEXT_BYTES].decode("utf-8", "ignore"))
        page.cut = len(raw) + (0 if raw.endswith(b"\n") else _pass_line(file))
        break
    return page


def _text(page: _Page, offset: int, *, at_end: bool) -> str:
    if not page.lines:
        return "[the file is empty]"
    text = "".join(page.lines)
    end = offset + len(page.lines)
    notes = []
    if page.cut is not None:
        notes.append(f"[line {end} has {page.cut} bytes and is cut here; use shell to see the rest of it]")
    if not at_end:
        notes.append(f"[lines {offset + 1} to {end}; there is more, read on with offset {end}]")
    if not notes:
        return text
    return "\n".join([text.removesuffix("\n"), *notes])
