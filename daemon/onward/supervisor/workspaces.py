"""Workspaces as directories that may lie on a dead mount: whoever looks at one may wait for ever."""

import math
import os
from dataclasses import dataclass
from functools import partial
from threading import Event

import anyio
from anyio import to_thread

ANSWER_S = 10.0
"""Seconds after which a file system that has not answered counts as away."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A workspace as it was seen. `path` leads to it without links, if it is a directory."""

    path: str
    is_dir: bool
    may_write: bool
    is_mount: bool


class Workspaces:
    """Looks at workspaces in threads of its own, which nobody waits for longer than `ANSWER_S`.

    One that gets no answer stays until it gets one; no more are sent to that place until then.
    """

    def __init__(self) -> None:
        self._silent: dict[str, Event] = {}
        self._threads = anyio.CapacityLimiter(math.inf)

    async def look_at(self, path: str) -> Seen | None:
        """Return how a workspace is, or None if its file system does not answer."""
        silent = self._silent.get(path)
        if silent is not None and not silent.is_set():
            return None
        answered = Event()
        with anyio.move_on_after(ANSWER_S):
            look = partial(_look, path, answered)
            seen = await to_thread.run_sync(look, abandon_on_cancel=True, limiter=self._threads)
            self._silent.pop(path, None)
            return seen
        self._silent[path] = answered
        return None


def _look(path: str, answered: Event) -> Seen:
    try:
        is_dir = os.path.isdir(path)
        return Seen(
            path=os.path.realpath(path) if is_dir else path,
            is_dir=is_dir,
            may_write=is_dir and os.access(path, os.W_OK | os.X_OK),
            is_mount=is_dir and os.path.ismount(path),
        )
    finally:
        answered.set()
