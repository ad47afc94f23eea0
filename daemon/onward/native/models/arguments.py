"""The arguments of a tool call, as models write them."""

import json
from typing import Any


def arguments_of(text: str) -> dict[str, Any] | str:
    """Return the JSON object in a call's arguments, or their text where they are none. Blank means no arguments."""
    if not text.strip():
        return {}
    try:
        value = json.loads(text)  # unlike orjson it reads half of a surrogate pair, which is then cleaned
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict) else text
