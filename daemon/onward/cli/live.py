"""The answer that is being written, below the timeline: drawn again with each piece, gone when its record comes."""

import os
import sys
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TextIO

from onward.cli.terminal import has_colour, paint, say
from onward.core.text import display

LINES = 8
_KEPT = 8000
_SMALLEST = (20, 4)


@dataclass(slots=True)
class LiveText:
    """Shows the end of a text that grows. `stream` None: shows nothing, and wants none."""

    stream: TextIO | None
    size: Callable[[], tuple[int, int]] = lambda: (80, 24)
    _text: str = field(default="")
    _drawn: int = field(default=0)

    @property
    def on_delta(self) -> Callable[[str], None] | None:
        return self.add if self.stream is not None else None

    def add(self, piece: str) -> None:
        """Show one more piece."""
        self._text = (self._text + piece)[-_KEPT:]
        columns, rows = (max(got, least) for got, least in zip(self.size(), _SMALLEST, strict=True))
        # The last column stays free: a terminal that has filled it may or may not be on the next line.
        shown = display(self._text, 4 * _KEPT).replace("\t", "    ")
        lines = wrapped(shown, columns - 1)[-min(LINES, rows - 2) :]
        self._erase()
        self._write("\n".join(paint(line, "dim", self.stream) for line in lines))
        self._drawn = len(lines)

    def clear(self) -> None:
        """Take the text away: what comes instead stands in its place."""
        self._erase()
        self._text, self._drawn = "", 0

    def say(self, text: str) -> None:
        """Print what is no data, without the text in its way."""
        self.clear()
        say(text)

    def _erase(self) -> None:
        if self._drawn:
            up = f"\x1b[{self._drawn - 1}A" if self._drawn > 1 else ""
            self._write(f"\r{up}\x1b[J")

    def _write(self, text: str) -> None:
        if self.stream is not None:
            self.stream.write(text)
            self.stream.flush()


@contextmanager
def live_text(*, wanted: bool = True) -> Iterator[LiveText]:
    """Give what shows text live on the terminal, if there is one; nothing of it stays."""
    live = LiveText(sys.stdout if wanted and has_colour(sys.stdout) else None, _size)
    try:
        yield live
    finally:
        live.clear()


def wrapped(text: str, columns: int) -> list[str]:
    """Return text in lines of so many cells; East Asian characters take two, combining ones none."""
    lines: list[str] = []
    for line in text.split("\n"):
        start, used = 0, 0
        for position, character in enumerate(line):
            cells = _cells(character)
            if used + cells > columns:
                lines.append(line[start:position])
                start, used = position, 0
            used += cells
        lines.append(line[start:])
    return lines


def _cells(character: str) -> int:
    if character.isascii():
        return 1
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _size() -> tuple[int, int]:
    try:
        size = os.get_terminal_size(sys.stdout.fileno())
        return size.columns, size.lines
    except (OSError, ValueError):
        return 80, 24
