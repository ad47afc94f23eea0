"""When Python looks for garbage that reference counts do not free."""

import gc

YOUNG_OBJECTS = 10_000
"""New containers before the next look. What runs hold stays, and next to nothing of it is ever in a cycle."""


def collect_seldom() -> None:
    """Never walk again what is here now, and walk what comes less often than Python does by itself."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])
