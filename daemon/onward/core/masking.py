"""Known secrets, kept out of every durable place by value. Pure, but for remembering what it was told.

Masking by name would miss the same value in an error text beside it; so what is masked is the value, wherever it
stands, raw or as JSON writes it. The mask is the same each time, so that equal texts stay equal.
"""

import re
from collections.abc import Mapping

import orjson

SHORTEST = 8
"""Values shorter than this are not masked: they would be found in innocent text."""
MARK = "[secret "

_SOUNDS_SECRET = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$")


class KnownSecrets:
    """The values that must not be written down."""

    def __init__(self) -> None:
        self._masks: dict[bytes, bytes] = {}

    def add(self, name: str, value: str) -> None:
        """Remember a value under the name that is shown in its place."""
        if len(value) < SHORTEST:
            return
        mask = f"{MARK}{re.sub('[^A-Za-z0-9_.-]', '_', name)}]".encode()
        for form in {value.encode("utf-8", "replace"), orjson.dumps(value.encode("utf-8", "replace").decode())[1:-1]}:
            self._masks.setdefault(form, mask)
        # The longest first: one secret may hold another.
        self._masks = dict(sorted(self._masks.items(), key=lambda item: -len(item[0])))

    def add_environment(self, environment: Mapping[str, str]) -> None:
        """Remember the values of all variables whose names sound like secrets."""
        for name, value in environment.items():
            if _SOUNDS_SECRET.search(name.upper()):
                self.add(name, value)

    def mask(self, data: bytes) -> bytes:
        """Return `data` (raw text or encoded JSON) with every known value replaced."""
        for value, mask in self._masks.items():
            if value in data:
                data = data.replace(value, mask)
        return data

    def mask_text(self, text: str) -> str:
        """Return `text` with every known value replaced."""
        return self.mask(text.encode("utf-8", "replace")).decode() if self._masks else text
