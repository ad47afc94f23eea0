"""One journal line: encoding, checksum, decoding. Pure.

`{"crc":"89abcdef","seq":17,"dur":15,"ts":"...","type":"ToolBatch", ...}` and a newline. The checksum is the CRC-32 of
the line without the 17 bytes after its first brace (the `crc` member itself) and without the newline.
"""

import re
from typing import Any
from zlib import crc32

import orjson

from onward.core.text import openings

BLOB_BYTES = 64 * 1024
"""A record whose line would be longer than this stands in a blob, and its line names that blob."""

MAX_SEQ = (1 << 53) - 1
MAX_DEPTH = 200
"""Containers in containers: more than any record has (`text.JSON_DEPTH`), less than what cannot be written again."""

_CRC = b'{"crc":"'
_SEAL = re.compile(rb'\{"...":"[0-9a-f]{8}",', re.DOTALL)
_BRACE_CRC = crc32(b"{")


class BadLine(ValueError):
    """These bytes are no whole line; the message says why."""


def encode_body(fields: dict[str, Any]) -> bytes:
    """Return a record's JSON object, to be finished by `seal`."""
    return orjson.dumps(fields)


def seal(seq: int, dur: int, ts: str, body: bytes) -> bytes:
    """Return the whole line, newline included, for a record's JSON object (`body`, not empty)."""
    rest = b'"seq":%d,"dur":%d,"ts":"%s",%s' % (seq, dur, ts.encode(), body[1:])
    return b'{"crc":"%08x",%s\n' % (crc32(rest, _BRACE_CRC), rest)


def decode(line: bytes) -> dict[str, Any]:
    """Return the record of one line (without its newline); `crc` is left out.

    A line without any `crc` key (written by hand) is accepted; then the record holds `"hand": true`.

    Raises:
        BadLine: It is not valid JSON, its checksum is wrong, or `seq`, `dur` or `type` is missing or impossible.
    """
    sealed = line.startswith(_CRC) and b'"crc":"%08x",' % crc32(line[18:], _BRACE_CRC) == line[1:18]
    # A first key of another name before a checksum is a damaged `crc`: nobody writes that by hand.
    if not sealed and _SEAL.match(line):
        raise BadLine("wrong checksum")
    record = parse(line)
    if sealed:
        del record["crc"]
    elif "crc" in record:
        raise BadLine("malformed checksum")
    else:
        record["hand"] = True
    seq, dur = record.get("seq"), record.get("dur", 0)
    if type(seq) is not int or not 1 <= seq <= MAX_SEQ or type(record.get("type")) is not str:
        raise BadLine("no seq or no type")
    if type(dur) is not int or not 0 <= dur < seq:
        raise BadLine("dur is no seq before this one")
    return record


def fingerprint(line: bytes) -> int:
    """Return a number by which a decoded line is told from another: its checksum."""
    return int(line[8:16], 16) if line.startswith(_CRC) else crc32(line)


def parse(text: bytes) -> dict[str, Any]:
    """Return the JSON object that `text` holds.

    Raises:
        BadLine: It holds none, or one that is nested too deeply to be worked with.
    """
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise BadLine("not JSON" if text.strip(b"\x00") else "zero bytes") from None
    if type(value) is not dict:
        raise BadLine("not an object")
    if openings(text) > MAX_DEPTH and _is_too_deep(value):
        raise BadLine("nested too deeply")
    return value


def _is_too_deep(value: dict[str, Any]) -> bool:
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        members = (item for box in level for item in (box.values() if type(box) is dict else box))
        level = [item for item in members if type(item) in (dict, list)]
        if not level:
            return False
    return True
