"""What reaches the terminal: escaped, in columns, coloured only where somebody looks at it."""

import json
import os
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, TextIO

from onward.core.text import display

_TONES = {"good": "32", "bad": "31", "warn": "33", "dim": "2", "strong": "1"}
_LINE_BREAK = re.compile(r"\s*\n\s*")


def has_colour(stream: TextIO) -> bool:
    """Say whether escapes are wanted on `stream` (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"


def paint(text: str, tone: str, stream: TextIO | None = None) -> str:
    """Return `text` in a tone (good, bad, warn, dim, strong; empty: as it is) where escapes are wanted."""
    if not tone or not has_colour(stream or sys.stdout):
        return text
    return f"\x1b[{_TONES[tone]}m{text}\x1b[0m"


def line(text: object, limit: int = 200) -> str:
    """Return foreign text as one line: escaped, its line breaks marked, bounded."""
    shown = display(_LINE_BREAK.sub(" ⏎ ", str(text).strip()).replace("\t", " "), limit * 4)
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def block(text: str, indent: str, *, lines: int = 12, limit: int = 2000) -> str:
    """Return foreign text with `indent` before every line but the first, so that none can look like one of ours."""
    shown = display(text.strip("\n"), limit).split("\n")
    left_out = len(shown) - lines
    if left_out > 0:
        shown = [*shown[:lines], f"… ({left_out} more lines)"]
    return f"\n{indent}".join(shown)


def out(text: str = "") -> None:
    """Print data."""
    print(text)  # noqa: T201  # this is where the command line prints


def say(text: str) -> None:
    """Print what is no data."""
    sys.stdout.flush()
    print(display(text, 20_000), file=sys.stderr, flush=True)  # noqa: T201  # this is where the command line prints


def out_json(value: object) -> None:
    """Print a JSON value on one line, in ASCII: it may be read in a terminal too."""
    out(json.dumps(value, separators=(",", ":")).replace("\x7f", "\\u007f"))


def table(header: Sequence[str], rows: Sequence[Sequence[str]], tones: Sequence[Sequence[str]] = ()) -> None:
    """Print rows in columns; cells are shown as they are. The last column takes what is left of the terminal."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    room = _terminal_width() - sum(widths[:-1]) - 2 * len(widths[:-1])
    for number, row in enumerate([header, *rows]):
        tone_of = ["dim"] * len(row) if number == 0 else (tones[number - 1] if tones else [""] * len(row))
        cells = [*row[:-1], row[-1] if room < 12 or len(row[-1]) <= room else row[-1][: room - 1] + "…"]
        padded = [cell.ljust(width) for cell, width in zip(cells[:-1], widths, strict=False)] + cells[-1:]
        out("  ".join(paint(cell, tone) for cell, tone in zip(padded, tone_of, strict=True)).rstrip())


def _terminal_width() -> int:
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns
    except (OSError, ValueError):
        return 1 << 16  # into a file or a pipe nothing is cut


def age(stamp: Any) -> str:
    """Return how long ago a UTC time of the journal is; `?` when it is none."""
    try:
        seconds = int((datetime.now(UTC) - datetime.fromisoformat(stamp)).total_seconds())
    except (TypeError, ValueError):
        return "?"
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{max(0, seconds)}s"


def dollars(amount: Any) -> str:
    """Return a cost."""
    return f"${amount:.2f}" if isinstance(amount, int | float) and amount else "-"
