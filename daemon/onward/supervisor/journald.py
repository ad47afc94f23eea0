"""Logs as journald takes them: one datagram with fields that can be searched (systemd's native journal protocol)."""

import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

SOCKET = Path("/run/systemd/journal/socket")
MAX_VALUE = 100_000
"""Bytes; a socket of journald takes somewhat more in one datagram."""
_PRIORITIES = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}
_FIELDS = {"run_id": "RUN_ID", "call_id": "CALL_ID"}


def stderr_is_journal(stream: str | None) -> bool:
    """Whether stderr still is what `$JOURNAL_STREAM` (device:inode) says was connected to the journal."""
    try:
        found = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError):
        return False
    return stream == f"{found.st_dev}:{found.st_ino}"


class JournalWriter:
    """Writes lines to journald, and to stderr what it does not take."""

    def __init__(self, path: Path = SOCKET) -> None:
        """Connect.

        Raises:
            OSError: Nobody listens there.
        """
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)
        self._socket.connect(str(path))

    def write(self, text: str, event: Mapping[str, object]) -> None:
        """Write one entry: `text` as its message, with the severity and the ids that `event` names."""
        try:
            self._socket.send(entry(text, event))
        except OSError:
            # Its queue is full, or it is being restarted. stderr is a stream, which it reads later.
            print(text, file=sys.stderr, flush=True)  # noqa: T201

    def close(self) -> None:
        self._socket.close()


def entry(text: str, event: Mapping[str, object]) -> bytes:
    """Return the datagram. Each value is one line, so that nothing in it can be a field of its own."""
    level = str(event.get("level", "info"))
    fields = {"PRIORITY": str(_PRIORITIES.get(level, 6)), "SYSLOG_IDENTIFIER": "onward"}
    fields |= {field: str(event[name]) for name, field in _FIELDS.items() if event.get(name)}
    fields["MESSAGE"] = text
    return b"".join(b"%s=%s\n" % (name.encode(), _one_line(value)) for name, value in fields.items())


def _one_line(value: str) -> bytes:
    return value.replace("\n", "\\n").encode(errors="replace")[:MAX_VALUE]
