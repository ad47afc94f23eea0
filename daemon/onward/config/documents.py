"""TOML files as people write them: parsed, and what is wrong in them said with its line and what to do."""

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from onward.core.text import clean

MAX_SHOWN_BITS = 256
MOST_DOTS = 5000

Keys = tuple[str | int, ...]

_HEADER = re.compile(r"^\s*\[\[?([^\[\]]+)\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"""^\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
_AT_LINE = re.compile(r"\s*\(at (?:line (\d+), column \d+|end of document)\)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong in a configuration file. `line` counts from 1; None when it is the file itself."""

    file: Path
    line: int | None = None
    what: str
    remedy: str

    def __str__(self) -> str:
        where = str(self.file) if self.line is None else f"{self.file}:{self.line}"
        return clean(f"{where}: {self.what}; {self.remedy}")

    def to_json(self) -> dict[str, Any]:
        """Return it as clients are told of it: names of files may be no text, but this is."""
        told = {"file": clean(str(self.file)), "line": self.line}
        return told | {"what": clean(self.what), "remedy": clean(self.remedy)}


def parse(file: Path, text: str) -> dict[str, Any] | Problem:
    """Return the tables of a TOML file, or what keeps it from being read."""
    # A key of many parts costs their square: a whole file of them would keep its reader busy for an hour.
    for number, written in enumerate(text.splitlines(), 1):
        if written.count(".") > MOST_DOTS:
            return Problem(file=file, line=number, what=f"more than {MOST_DOTS} dots in one line", remedy="break it up")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        at = _AT_LINE.search(message)
        line = int(at[1]) if at and at[1] else text.count("\n") + 1
        return Problem(file=file, line=line, what=f"not TOML: {_AT_LINE.sub('', message)}", remedy="correct this line")
    except RecursionError:
        return Problem(file=file, what="nested too deeply", remedy="nothing here needs brackets in that many brackets")
    except ValueError as error:  # a number with thousands of digits
        return Problem(file=file, what=f"it holds a value that cannot be read: {error}", remedy="correct it")


def line_of(text: str, keys: Keys) -> int | None:
    """Return the line on which a key stands, or that of the innermost table around it that has one."""
    wanted = tuple(key for key in keys if isinstance(key, str))
    table: tuple[str, ...] = ()
    best, best_depth, inside = None, 0, None
    for number, line in enumerate(text.splitlines(), 1):
        if inside is None:
            if header := _HEADER.match(line):
                table = found = _dotted(header[1])
            else:
                key = _KEY.match(line)
                found = (*table, *_dotted(key[1])) if key else ()
            if best_depth < len(found) and wanted[: len(found)] == found:
                best, best_depth = number, len(found)
        inside = _still_inside(line, inside)
    return best


def nearest(key: str, known: Iterable[str]) -> str:
    """Return the remedy for an unknown key."""
    names = sorted(known)
    close = difflib.get_close_matches(key, names, 1, 0.6)
    return f"did you mean {close[0]!r}?" if close else f"known here: {', '.join(names)}"


def problems_of(error: ValidationError, file: Path, text: str) -> list[Problem]:
    """Return what a pydantic model refused in a file."""
    return [
        Problem(
            file=file, line=line_of(text, item["loc"]), what=f"{dotted(item['loc'])}: {said(item)}", remedy="correct it"
        )
        for item in error.errors()
    ]


def dotted(keys: Keys) -> str:
    return ".".join(map(str, keys))


def said(item: Mapping[str, Any]) -> str:
    """Return what pydantic found wrong in one value, with the value, but where that may be a secret key."""
    message = str(item["msg"]).removeprefix("Value error, ")
    value = item["input"]
    if any("key" in str(part) for part in item["loc"]):
        return message
    # Of a number that is too long to be shown nothing is: Python refuses to write its digits.
    shown = isinstance(value, str | float) or (isinstance(value, int) and value.bit_length() <= MAX_SHOWN_BITS)
    return f"{message} (it is {value!r})" if shown else message


def _dotted(text: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in text.split("."))


def _still_inside(line: str, inside: str | None) -> str | None:
    """The quotes of the multi-line string that goes on behind this line, if any; keys in such a text are no keys."""
    for quotes in re.findall(r'"""|\'\'\'', line):
        if inside is None:
            inside = quotes
        elif inside == quotes:
            inside = None
    return inside
