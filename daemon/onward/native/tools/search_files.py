"""Searching the text of files with a regular expression."""
# ruff: noqa: D417  # the Args are what the model is told

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Annotated

from annotated_types import Ge, Le

from onward.core.text import EXCERPT_BYTES, clean
from onward.core.vocabulary import Effect, Outcome
from onward.native.tools.definition import ToolError, tool
from onward.native.tools.files import located, shown
from onward.ports.tool import ToolContext, ToolResult

SECONDS = 15.0
TEXT_BYTES = EXCERPT_BYTES - 512  # room for the notes
WORKER = Path(__file__).with_name("search_worker.py")


@tool(effect=Effect.READ)
def search_files(
    context: ToolContext, *, pattern: str, path: str = ".", limit: Annotated[int, Ge(1), Le(1000)] = 100
) -> ToolResult:
    """Find the lines that match a regular expression, as `file:line: text`.

    Binary files, `.git` and symbolic links are passed over.

    Args:
        pattern: A Python regular expression, matched against each line by itself; `(?i)` in front ignores case.
        path: The file, or the directory to search with everything below it; relative to the workspace or absolute.
        limit: How many matching lines to show.
    """
    top = located(context, path)
    lines, why = _ask({"pattern": pattern, "path": top, "limit": limit, "seconds": SECONDS})
    if why not in ("complete", "limit", "time"):
        raise ToolError(f"cannot search {shown(path)}: {clean(why)}")
    found = [f"{_file(path, file)}:{number}: {clean(text)}" for _, file, number, text in lines]
    kept = _fitting(found)
    if why == "time":
        text = f"[error] stopped after {SECONDS:.0f} s; search a smaller path or with a simpler pattern"
        return ToolResult(text="\n".join([text, *kept]), outcome=Outcome.TIMEOUT)
    more = why == "limit" or len(kept) < len(found)
    note = f"[the first {len(kept)} matching lines; there are more]" if more else ""
    return ToolResult(text="\n".join([*kept, *filter(None, [note])]) or "[no line matches]")


def _ask(request: dict[str, object]) -> tuple[list[list[str]], str]:
    """Let the worker search; return the matches it printed, and why it ended: complete, limit, time or an error."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-X", "utf8", str(WORKER)],
        input=json.dumps(request).encode(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={},
        cwd="/",
        check=False,
    )
    printed = done.stdout.split(b"\n")[:-1]  # the last one is empty, or was not printed to its end
    lines = [json.loads(line) for line in printed]
    if lines and lines[-1][0] == "end":
        return lines[:-1], lines[-1][1]
    return lines, "time" if done.returncode == -signal.SIGALRM else f"the search ended with status {done.returncode}"


def _file(path: str, below: str) -> str:
    return shown(os.path.normpath(os.path.join(path, below)) if below else path)


def _fitting(lines: list[str]) -> list[str]:
    kept, size = [], 0
    for line in lines:
        size += len(line.encode()) + 1
        if size > TEXT_BYTES:
            break
        kept.append(line)
    return kept
