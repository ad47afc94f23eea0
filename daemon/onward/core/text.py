"""Text at the border: cleaned where it enters, escaped where it is shown, shortened for the model. Pure."""

import math
import re

import orjson

EXCERPT_BYTES = 64 * 1024
JSON_DEPTH = 128  # containers in containers; orjson refuses to write more than 254, and a record wraps a few around
TOO_DEEP = "[nested too deeply]"

_SURROGATE_OR_NUL = re.compile("[\ud800-\udfff\x00]")
# C0 and C1 controls (but tab and newline), line and paragraph separators, bidi controls, and what Unicode calls default
# ignorable; spaces that are none to a shell; and what is canonically the same as an ASCII character, but is not it.
# U+FE0E and U+FE0F stay: they choose between the two looks of an emoji.
_INVISIBLE = re.compile(
    r"[\xa0\u1680\u2000-\u200a\u202f\u205f\u2800\u3000\u037e\u1fef\u212a"
    r"\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    r"\u2060-\u206f\u3164\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    r"\U000e0000-\U000e0fff]"
)

_GAP = re.compile(r"[^\S\n]{9,}")
_HOLE = re.compile(r"(?:[^\S\n]*\n){4,}")


def clean(text: str) -> str:
    """Return `text` as valid UTF-8 text: lone surrogates and NUL become U+FFFD."""
    return _SURROGATE_OR_NUL.sub("\ufffd", text)


def decode(data: bytes) -> str:
    """Return bytes from a process or file as clean text; invalid UTF-8 becomes U+FFFD."""
    return data.decode("utf-8", "replace").replace("\x00", "\ufffd")


def clean_json(value: object) -> object:
    """Return a JSON value that the journal can hold: every string in it is clean (keys too).

    What could not be written, or not be read back as it was, is replaced: containers below `JSON_DEPTH` levels by a
    text that says so, integers of more than 64 bits by their digits, infinities and NaN by None.
    """
    return value if _is_clean(value) else _cleaned(value, JSON_DEPTH)


def _is_clean(value: object) -> bool:
    """Whether there is surely nothing to replace in `value`: told by how it is written, which is much quicker."""
    try:
        written = orjson.dumps(value)
    except (TypeError, RecursionError):
        return False
    # "null" also stands for NaN and infinities.
    return b"\\u0000" not in written and b"null" not in written and openings(written) <= JSON_DEPTH


def openings(written: bytes) -> int:
    """Return how many braces and brackets a JSON text opens, those in its strings included: it is nested no deeper.

    Taking them out and measuring is many times quicker than `bytes.count`, and this is asked of every line.
    """
    return len(written) - len(written.replace(b"{", b"").replace(b"[", b""))


def _cleaned(value: object, depth: int) -> object:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict | list) and depth == 0:
        return TOO_DEEP
    if isinstance(value, dict):
        return {clean(str(key)): _cleaned(item, depth - 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_cleaned(item, depth - 1) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        return str(value)
    return value


def excerpt(text: str, limit_bytes: int = EXCERPT_BYTES) -> str:
    """Return `text`, or its beginning and end with a line between that counts what is left out.

    Guarantee: the result is at most `limit_bytes` of UTF-8, for limits of at least 128 bytes.
    """
    raw = text.encode("utf-8", "replace")
    if len(raw) <= limit_bytes:
        return text
    room = max(0, limit_bytes - 128) // 2
    head = raw[:room].decode("utf-8", "ignore")
    tail = raw[len(raw) - room :].decode("utf-8", "ignore")
    left_out = len(raw) - len(head.encode()) - len(tail.encode())
    return f"{head}\n[... {left_out} bytes left out ...]\n{tail}"


def display(text: str, limit: int = 2000) -> str:
    """Return foreign text fit for a terminal, a log line or a page: what is not what it seems is escaped.

    That is control, bidi and invisible characters, spaces other than U+0020, and doubles of ASCII characters. At most
    `limit` characters are shown; what is cut is counted.
    """
    shown = _INVISIBLE.sub(lambda m: f"\\u{{{ord(m.group()):x}}}", clean(text))
    return shown if len(shown) <= limit else f"{shown[:limit]}… ({len(shown) - limit} more characters)"


def without_gaps(text: str) -> str:
    """Return a text in which long gaps are counted instead of shown: what is to be read may stand behind them."""
    counted = _GAP.sub(lambda gap: f"[{len(gap.group())} blanks]", text)
    return _HOLE.sub(lambda hole: f"\n[{hole.group().count(chr(10)) - 1} blank lines]\n", counted)
