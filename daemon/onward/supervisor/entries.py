"""What the daemon holds in memory of each run, loaded or not."""

from contextlib import suppress
from dataclasses import dataclass, field

import anyio
from anyio.streams.memory import MemoryObjectSendStream

from onward.core.index import damaged_index
from onward.core.records import Json
from onward.core.status import TERMINAL
from onward.native.run import NativeRun
from onward.supervisor.live import LiveRun


@dataclass(slots=True)
class Loaded:
    """The parts of a run that is in memory."""

    live: LiveRun
    native: NativeRun | None = None
    index_dirty: bool = False


@dataclass(slots=True)
class Entry:
    """One run. `index` is what was last known of it; `problem` says why it cannot be folded.

    `lock` is held while the run is being loaded, worked on or unloaded: ops that need it wait for it.
    """

    run_id: str
    index: Json
    loaded: Loaded | None = None
    problem: str | None = None
    queued: bool = False
    failures: int = 0
    lock: anyio.Lock = field(default_factory=anyio.Lock)
    changed: anyio.Event | None = None
    watchers: set[MemoryObjectSendStream[str]] = field(default_factory=set)
    """Those who also want the pieces of answers as they come; one that is slow misses some."""

    def shown(self) -> Json:
        """Return the index as it is now."""
        if self.problem is not None:
            return damaged_index(self.run_id, self.problem, self.index)
        if self.loaded is not None:
            return self.loaded.live.index()
        if self.queued and self.index.get("status") not in TERMINAL:
            return {**self.index, "status": "waiting", "waiting_on": "slot"}
        return self.index

    def tell_delta(self, text: str) -> None:
        """Give a piece of an answer to those who watch."""
        for watcher in self.watchers:
            with suppress(anyio.WouldBlock, anyio.BrokenResourceError):
                watcher.send_nowait(text)

    def notify(self) -> None:
        """Wake those who watch."""
        if self.changed is not None:
            self.changed.set()
            self.changed = None

    def waiter(self) -> anyio.Event:
        """Return what is set at the next change."""
        if self.changed is None:
            self.changed = anyio.Event()
        return self.changed
