"""What the disk says of a file tool's call that was interrupted: for recovery, which only looks."""

import os
from pathlib import Path
from typing import Any

from onward.core.text import clean_json
from onward.native.tools.definition import ToolError
from onward.native.tools.files import open_regular, resolved
from onward.native.tools.write_file import MAX_EDITED_BYTES

DONE = "The file now holds exactly the intended content."
GONE = "The file does not exist: the call did not make it."
OTHER = "The file holds something else than the intended content ({found} bytes, intended were {intended})."
EDITED = "In the file the new text is there and the old text is not: the edit seems to have been made."
NOT_EDITED = "In the file the old text is there and the new text is not: the edit was not made, or was undone."
PREPARED = "Its new content was prepared and not put in place: the file is as it was before the call."
UNCLEAR = "The file holds {has_old} old text and {has_new} new text: it cannot be said whether the edit was made."


def file_evidence(
    name: str, arguments: dict[str, Any], workspace: Path, home: str | None = None, *, prepared: bool = False
) -> str | None:
    """Return one sentence on what a call of write_file or edit_file left behind; None when nothing can be said.

    `prepared`: its temporary file was still there, which a call renames to be the file. Blocks; never raises for what
    it finds on the disk.
    """
    said = _said(name, arguments, workspace, home)
    return PREPARED if prepared and said not in (DONE, EDITED) else said


def _said(name: str, arguments: dict[str, Any], workspace: Path, home: str | None) -> str | None:
    given = clean_json(arguments)
    if not isinstance(given, dict) or not isinstance(given.get("path"), str):
        return None
    look = {"write_file": _written, "edit_file": _edited}.get(name)
    if look is None:
        return None
    try:
        content = _content(resolved(given["path"], workspace, home))
        return look(content, given)
    except FileNotFoundError:
        return GONE
    except (OSError, ToolError, KeyError, AttributeError):
        return None


def _content(path: str) -> bytes:
    with os.fdopen(open_regular(path), "rb") as file:
        return file.read(MAX_EDITED_BYTES + 1)


def _written(content: bytes, given: dict[str, Any]) -> str:
    intended = given["content"].encode()
    if content == intended:
        return DONE
    return OTHER.format(found=len(content), intended=len(intended))


def _edited(content: bytes, given: dict[str, Any]) -> str:
    old, new = given["old"].encode(), given["new"].encode()
    # Where one holds the other, finding the shorter says nothing of its own.
    has_old = old in (content.replace(new, b"") if new and old in new else content)
    has_new = bool(new) and new in (content.replace(old, b"") if new in old else content)
    if has_new and not has_old:
        return EDITED
    if has_old and not has_new:
        return NOT_EDITED
    return UNCLEAR.format(has_old="the" if has_old else "no", has_new="the" if has_new else "no")
