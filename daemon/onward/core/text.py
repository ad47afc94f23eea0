"""Text at the border: cleaned where it enters, escaped where it is shown, shortened for the model. Pure."""

import re
import unicodedata

EXCERPT_BYTES = 64 * 1024

_SURROGATE_OR_NUL = re.compile("[\ud800-\udfff\x00]")
_INVISIBLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e01ef]")


def clean(text: str) -> str:
    """Return `text` as valid UTF-8 text: lone surrogates and NUL become U+FFFD."""
    return _SURROGATE_OR_NUL.sub("\ufffd", text)


def decode(data: bytes) -> str:
    """Return bytes from a process or file as clean text; invalid UTF-8 becomes U+FFFD."""
    return data.decode("utf-8", "replace").replace("\x00", "\ufffd")


def clean_json(value: object) -> object:
    """Return a JSON value with every string in it cleaned (keys too)."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(str(key)): clean_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [clean_json(item) for item in value]
    return value


def excerpt(text: str, limit_bytes: int = EXCERPT_BYTES, *, where: str = "") -> str:
    """Return `text`, or its beginning and end with a line between that counts what is left out.

    Guarantee: the result is at most `limit_bytes` of UTF-8 (for limits of 256 and more). `where` says where the rest is.
    """
    raw = text.encode()
    if len(raw) <= limit_bytes:
        return text
    room = (limit_bytes - 128 - len(where.encode())) // 2
    head = raw[:room].decode("utf-8", "ignore")
    tail = raw[-room:].decode("utf-8", "ignore")
    left_out = len(raw) - len(head.encode()) - len(tail.encode())
    return f"{head}\n[... {left_out} bytes left out{where} ...]\n{tail}"


def display(text: str, limit: int = 2000) -> str:
    """Return foreign text fit for a terminal, a log line or a page: control, bidi and invisible characters escaped.

    At most `limit` characters are shown; what is cut is counted.
    """
    shown = _INVISIBLE.sub(lambda m: f"\\u{{{ord(m.group()):x}}}", unicodedata.normalize("NFC", clean(text)))
    return shown if len(shown) <= limit else f"{shown[:limit]}… ({len(shown) - limit} more characters)"
