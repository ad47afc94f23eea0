"""Writing and editing files: the whole new content or the old one, never half, and on disk before the call is done."""
# ruff: noqa: D417  # the Args are what the model is told

import os
from contextlib import suppress
from pathlib import Path

from onward.core.vocabulary import Effect
from onward.native.tools.definition import ToolError, tool
from onward.native.tools.files import explained, held, located, open_regular, resolved, shown, write_durably
from onward.ports.tool import ToolContext, ToolResult

MAX_EDITED_BYTES = 64 << 20
MAX_COUNTED = 1000


@tool(effect=Effect.IDEMPOTENT)
def write_file(context: ToolContext, *, path: str, content: str) -> ToolResult:
    """Write a text file: make it, or replace all of what it holds. Missing directories are made.

    Args:
        path: The file, relative to the workspace or absolute; a symbolic link is followed.
        content: The whole new content.
    """
    name = located(context, path)
    raw = content.encode()
    with explained("write", name), held(name) as target:
        if Path(target).is_relative_to(context.workspace) and not context.workspace.is_dir():
            # Made anew it would hold this one file: whoever brings the real one back would find it in the way.
            raise ToolError(f"the workspace {shown(str(context.workspace))} is gone, so nothing was written")
        write_durably(target, raw, temp_name(context))
    return ToolResult(text=f"wrote {len(raw)} bytes to {shown(path)}")


@tool(effect=Effect.WRITE)
def edit_file(
    context: ToolContext,
    *,
    path: str,
    old: str,
    new: str,
    all: bool = False,  # noqa: A002  # its name for the model
) -> ToolResult:
    """Replace a piece of text in a file.

    Args:
        path: The file, relative to the workspace or absolute; a symbolic link is followed.
        old: The text to replace, exactly as it stands in the file, with enough around it to occur only once.
        new: What to put in its place.
        all: Replace every occurrence instead of exactly one.
    """
    name = located(context, path)
    with explained("edit", name), held(name) as target:
        with os.fdopen(open_regular(target), "rb") as file:
            before = file.read(MAX_EDITED_BYTES + 1)
        if len(before) > MAX_EDITED_BYTES:
            raise ToolError(f"{shown(path)} has more than {MAX_EDITED_BYTES} bytes; edit it with shell")
        after, count = replaced(before, old.encode(), new.encode(), every=all)
        write_durably(target, after, temp_name(context))
    return ToolResult(text=f"replaced {count} occurrence{'s' if count > 1 else ''} in {shown(path)}")


def remove_leftover(path: str, run_id: str, call_id: str, workspace: Path, home: str | None = None) -> bool:
    """Remove the temporary file that an interrupted call left beside `path`; says whether there was one. Blocks."""
    with suppress(OSError, ToolError, ValueError):
        target = os.path.realpath(resolved(path, workspace, home))
        os.unlink(os.path.join(os.path.dirname(target), _temp_name(run_id, call_id)))
        return True
    return False


def temp_name(context: ToolContext) -> str:
    """Return the name under which a call prepares a file, beside it; a crash may leave it there."""
    return _temp_name(context.run_id, context.call_id)


def _temp_name(run_id: str, call_id: str) -> str:
    return f".onward-{run_id}-{call_id}.tmp"


def replaced(before: bytes, old: bytes, new: bytes, *, every: bool) -> tuple[bytes, int]:
    """Return the edited content and how many occurrences were replaced (bytes, so what is no UTF-8 stays as it is).

    Raises:
        ToolError: `old` does not occur exactly once (with `every`: at all), or nothing would change.
    """
    if not old:
        raise ToolError("old is empty; to make a file or write all of it use write_file")
    if old == new:
        raise ToolError("old and new are the same, there is nothing to change")
    found = _occurrences(before, old)
    if found == 0:
        crlf = b"\n" in old and b"\r" not in old and b"\r\n" in before
        raise ToolError(
            "old does not occur in the file"
            + ("; its lines end in CRLF, old has LF" if crlf else "; read it again, every space and line end counts")
        )
    if every:
        return before.replace(old, new), before.count(old)
    if found > 1:
        times = f"{found} times" if found < MAX_COUNTED else f"at least {found} times"
        raise ToolError(f"old occurs {times} in the file; add lines around it so that it is unique, or use all")
    return before.replace(old, new), 1


def _occurrences(text: bytes, piece: bytes) -> int:
    """Overlapping ones count too: `aa` in `aaa` does not say which is meant."""
    count, at = 0, text.find(piece)
    while at >= 0 and count < MAX_COUNTED:
        count, at = count + 1, text.find(piece, at + 1)
    return count
