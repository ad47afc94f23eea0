"""One journal line: encoding, checksum, decoding. Pure.

`{"crc":"89abcdef","seq":17,"dur":15,"ts":"...","type":"ToolBatch", ...}` and a newline. The checksum is the CRC-32 of
the line without the 17 bytes after its first brace (the `crc` member itself) and without the newline.
"""

from typing import Any
from zlib import crc32

import orjson

MAX_LINE_BYTES = 16 * 1024 * 1024
BLOB_BYTES = 64 * 1024
"""A record whose line would be longer than this stands in a blob, and its line names that blob."""

_PREFIX = b'{"crc":"'
_HEX = frozenset(b"0123456789abcdef")
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
        BadLine: It is not valid JSON, its checksum is wrong, or `seq` or `type` is missing.
    """
    sealed = line[:8] == _PREFIX
    if sealed and not (line[16:18] == b'",' and _HEX.issuperset(line[8:16])):
        raise BadLine("malformed checksum")
    if sealed and crc32(memoryview(line)[18:], _BRACE_CRC) != int(line[8:16], 16):
        raise BadLine("wrong checksum")
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        raise BadLine("not JSON" if line.strip(b"\x00") else "zero bytes") from None
    if type(record) is not dict:
        raise BadLine("not an object")
    if sealed:
        del record["crc"]
    elif "crc" in record:
        raise BadLine("checksum not at the start of the line")
    else:
        record["hand"] = True
    if type(record.get("seq")) is not int or record["seq"] < 1 or type(record.get("type")) is not str:
        raise BadLine("no seq or no type")
    return record
