"""Searches files for a regular expression, in a process of its own.

A pattern such as `(a+)+$` can take longer than the universe lasts, `re` cannot be interrupted in a thread and holds the
interpreter lock meanwhile. So this program, started by search_files with `-I -S` (standard library only), asks the
kernel for its own end before it begins: that also holds when the daemon is gone.

It reads one JSON object from stdin and prints one JSON array a line: `["match", file, line number, text]`, then
`["end", why]` with why = complete, limit or an error text. Ended by SIGALRM means that the time was up.
"""

import json
import os
import re
import resource
import signal
import stat
import sys
from collections.abc import Iterator

LINE_BYTES = 64 * 1024  # of a longer line only so much at a time is looked at
MEMORY_BYTES = 1 << 30
SHOWN_CHARACTERS = 300
NOT_ENTERED = frozenset({".git"})


def main() -> None:
    request = json.load(sys.stdin)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, request["seconds"])
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    try:
        say("end", search(request["pattern"], request["path"], request["limit"]))
    except (re.error, OverflowError, RecursionError, MemoryError) as error:
        say("end", f"bad pattern: {error or type(error).__name__}")
    except OSError as error:
        say("end", f"{error.strerror}: {error.filename}")


def say(*what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()  # it may be killed at any time


def search(pattern: str, top: str, limit: int) -> str:
    """Print the matching lines; return why it ended."""
    wanted = re.compile(pattern)
    left = limit
    for path in files(top):
        for number, text in matching_lines(wanted, path):
            if left == 0:
                return "limit"
            left -= 1
            say("match", os.path.relpath(path, top) if path != top else "", number, text)
    return "complete"


def files(top: str) -> Iterator[str]:
    """The regular files at and below `top`, in order; symbolic links below it are not followed."""
    if not stat.S_ISDIR(os.stat(top).st_mode):
        yield top
        return
    os.close(os.open(top, os.O_RDONLY | os.O_DIRECTORY))
    for directory, directories, names in os.walk(top):
        directories[:] = sorted(set(directories) - NOT_ENTERED)
        for name in sorted(names):
            path = os.path.join(directory, name)
            if not os.path.islink(path):
                yield path


def matching_lines(wanted: "re.Pattern[str]", path: str) -> Iterator[tuple[int, str]]:
    """Line numbers and lines of a text file that match; a file that cannot be read or is binary has none."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        with os.fdopen(fd, "rb") as file:
            if b"\0" in file.peek(8192)[:8192]:
                return
            number = 1
            while raw := file.readline(LINE_BYTES):
                line = raw.decode("utf-8", "replace").rstrip("\r\n")
                if found := wanted.search(line):
                    yield number, around(line, found.start())
                number += raw.endswith(b"\n")
    except OSError:
        return


def around(line: str, at: int) -> str:
    """The part of a long line in which the match begins."""
    start = max(0, min(at - SHOWN_CHARACTERS // 3, len(line) - SHOWN_CHARACTERS))
    shown = line[start : start + SHOWN_CHARACTERS]
    return ("..." if start else "") + shown + ("..." if start + SHOWN_CHARACTERS < len(line) else "")


if __name__ == "__main__":
    main()
