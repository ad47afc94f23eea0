"""Lines of bytes from a stream that may hold anything: bounded, with the line after a too long one intact. Pure."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

KEPT = 512
_ID = re.compile(rb'"id"\s*:\s*([0-9]{1,18})\s*[,}]')


@dataclass(frozen=True, slots=True)
class TooLong:
    """What is known of a line that was not kept: its beginning, its end and its length."""

    head: bytes
    tail: bytes
    length: int

    def request_id(self) -> int | None:
        """Return the id of the request that the line answers: some servers write it first, some last."""
        first, last = _ID.search(self.head), list(_ID.finditer(self.tail))
        found = first[1] if first else last[-1][1] if last else None
        return None if found is None else int(found)


@dataclass(slots=True)
class Lines:
    """Cuts chunks into lines of at most `limit` bytes."""

    limit: int
    _kept: bytearray = field(default_factory=bytearray)
    _dropped: TooLong | None = None

    def feed(self, chunk: bytes) -> Iterator[bytes | TooLong]:
        """Take a chunk; yields the lines that it ends, without their newlines."""
        *whole, rest = chunk.split(b"\n")
        for part in whole:
            self._add(part)
            yield self._taken()
        self._add(rest)

    def _add(self, part: bytes) -> None:
        if self._dropped is not None:
            tail = (self._dropped.tail + part)[-KEPT:]
            self._dropped = TooLong(self._dropped.head, tail, self._dropped.length + len(part))
        elif len(self._kept) + len(part) <= self.limit:
            self._kept += part
        else:
            self._kept += part
            self._dropped = TooLong(bytes(self._kept[:KEPT]), bytes(self._kept[-KEPT:]), len(self._kept))
            self._kept = bytearray()

    def _taken(self) -> bytes | TooLong:
        line: bytes | TooLong = self._dropped or bytes(self._kept)
        self._kept, self._dropped = bytearray(), None
        return line
