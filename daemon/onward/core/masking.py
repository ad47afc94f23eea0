"""Known secrets, kept out of every durable place by value. Pure, but for remembering what it was told.

Masking by name would miss the same value in an error text beside it; so what is masked is the value, wherever it
stands, raw or as JSON writes it. The mask is the same each time, so that equal texts stay equal.

In a record only what others said is masked: a word, an id or a time of ours stays what it is even where somebody's
password is the same, for the run would be lost with it.
"""

import re
from collections.abc import Mapping
from typing import Any

import orjson

SHORTEST = 8
"""Values shorter than this are not masked: they would be found in innocent text."""
MARK = "[secret "
_MARK = MARK.encode()

_NAMES = (
    "type run_id kind agent_name agent_hash workspace on_restart version model parent request_hash idempotency_key "
    "machine_id boot_id cause message_id source role provider provider_id stop_reason call_id name effect outcome "
    "settled_by output_blob ends_run moves_to stage to interaction_id expires_at retry_at needs failure status "
    "in_flight id"
)
_OURS = frozenset(_NAMES.split())
"""Members of records whose texts are never masked."""
_THEIRS = frozenset({"arguments", "input", "value"})
"""Members in which everything is a model's or a person's: keys and whole numbers are masked in them, too."""
_THINKING = ("thinking", "redacted_thinking")

_SOUNDS_SECRET = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$")


class KnownSecrets:
    """The values that must not be written down."""

    def __init__(self) -> None:
        self._masks: dict[bytes, bytes] = {}

    def add(self, name: str, value: str) -> None:
        """Remember a value under the name that is shown in its place."""
        value = value.strip()
        if len(value) < SHORTEST:
            return
        mask = f"{MARK}{re.sub('[^A-Za-z0-9_.-]', '_', name)}]".encode()
        forms = {value.encode("utf-8", "replace"), orjson.dumps(value.encode("utf-8", "replace").decode())[1:-1]}
        # Another thread may be masking at this moment, so what is there is replaced, not changed.
        # The longest first: one secret may hold another.
        masks = dict.fromkeys(forms, mask) | self._masks
        self._masks = dict(sorted(masks.items(), key=lambda item: -len(item[0])))

    def add_environment(self, environment: Mapping[str, str]) -> None:
        """Remember the values of all variables whose names sound like secrets."""
        for name, value in environment.items():
            if _SOUNDS_SECRET.search(name.upper()):
                self.add(name, value)

    def mask_record(self, body: bytes) -> bytes:
        """Return a record's encoded JSON with every known value replaced: valid JSON, and of the same shape.

        A thinking block in which the mark stands says whether that is a mask (`masked`), or was written by the model.
        """
        if _MARK not in body and not any(map(body.__contains__, self._masks)):
            return body
        return orjson.dumps(self._masked(orjson.loads(body)))

    def _masked(self, value: Any, *, ours: bool = False, theirs: bool = False) -> Any:
        if isinstance(value, str):
            return value if ours else self.mask_text(value)
        if isinstance(value, list):
            return [self._masked(item, ours=ours, theirs=theirs) for item in value]
        if isinstance(value, dict):
            masked = {
                self.mask_text(key) if theirs else key: self._masked(
                    item, ours=not theirs and key in _OURS, theirs=theirs or key in _THEIRS
                )
                for key, item in value.items()
            }
            if not theirs and value.get("type") in _THINKING and MARK in str(masked):
                masked["masked"] = masked != value
            return masked
        if theirs and type(value) is int and (mask := self._masks.get(b"%d" % value)) is not None:
            return mask.decode()
        return value

    def mask(self, data: bytes) -> bytes:
        """Return the raw text `data` with every known value replaced."""
        for value, mask in self._masks.items():
            if value in data:
                data = data.replace(value, mask)
        return data

    def mask_text(self, text: str) -> str:
        """Return `text` with every known value replaced."""
        return self.mask(text.encode("utf-8", "replace")).decode() if self._masks else text
