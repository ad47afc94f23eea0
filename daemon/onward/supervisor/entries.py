"""What the daemon holds in memory of each run, loaded or not."""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import anyio
from anyio.streams.memory import MemoryObjectSendStream

from onward.core.ids import parse_run_id
from onward.core.index import damaged_index, index_of, questions_of, suspended_index
from onward.core.records import Json
from onward.core.state import RunState
from onward.core.status import TERMINAL, Status
from onward.errors import BadRequest, NotFound
from onward.native.run import NativeRun
from onward.supervisor.live import LiveRun


@dataclass(slots=True)
class Loaded:
    """The parts of a run that is in memory."""

    live: LiveRun
    native: NativeRun | None = None
    index_dirty: bool = False


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of an answer that is being written, and the request that it answers."""

    text: str
    request: tuple[int, int] | None


@dataclass(slots=True)
class Entry:
    """One run. `index` is what was last known of it; `problem` says why it cannot be folded.

    There is one for every run on disk: what only a run at work needs is made when it is needed.
    """

    run_id: str
    index: Json
    loaded: Loaded | None = None
    problem: str | None = None
    queued: bool = False
    failures: int = 0
    questions: tuple[Json, ...] = ()
    suspended: str | None = None
    """Why its journal is not even read: the daemon died with it in hand."""
    held: str | None = None
    """Why it is not entered, though it could be."""
    suspect: bool | None = None
    """Whether it may be what killed daemons; None: not known before it is read."""
    timer: anyio.CancelScope | None = None
    """What waits for the time at which it is to be entered; cancelled where that is another one now."""
    _lock: anyio.Lock | None = None
    _saying: anyio.Lock | None = None
    changed: anyio.Event | None = None
    watchers: set[MemoryObjectSendStream[Piece]] = field(default_factory=set)
    """Those who also want the pieces of answers as they come; one that is slow misses some."""
    on_change: Callable[["Entry"], None] = lambda _entry: None
    """Is told when what is shown of the run may have changed."""

    @property
    def lock(self) -> anyio.Lock:
        """Held while the run is being loaded, worked on or unloaded: ops that need it wait for it."""
        if self._lock is None:
            self._lock = anyio.Lock()
        return self._lock

    @property
    def saying(self) -> anyio.Lock:
        """Held while a message or an answer is written."""
        if self._saying is None:
            self._saying = anyio.Lock()
        return self._saying

    def shown(self) -> Json:
        """Return the index as it is now."""
        if self.suspended is not None:
            return suspended_index(self.index, self.suspended)
        if self.problem is not None:
            return damaged_index(self.run_id, self.problem, self.index)
        if self.loaded is not None:
            return self.loaded.live.index()
        if self.queued and self.index.get("status") not in TERMINAL:
            return {**self.index, "status": "waiting", "waiting_on": "slot"}
        if self.held is not None and self.index.get("status") in (Status.ACTIVE, Status.WAITING):
            return {**self.index, "status": Status.WAITING, "waiting_on": "release", "error": self.held}
        return self.index

    def settled(self) -> bool:
        """Whether all that was written of the run is durable; if not, `notify` follows when it is."""
        return self.loaded is None or self.loaded.live.settled()

    def keep(self, state: RunState) -> None:
        """Remember what a folded state says, while the run leaves memory."""
        self.index = index_of(state)
        self.questions = tuple(questions_of(state))

    def open_questions(self) -> Sequence[Json]:
        """Return the questions that wait for an answer now."""
        if self.loaded is None:
            return self.questions
        live = self.loaded.live
        return questions_of(live.state, up_to=live.durable_seq)

    def tell_delta(self, text: str) -> None:
        """Give a piece of an answer to those who watch."""
        piece = Piece(text, self.request())
        for watcher in self.watchers:
            with suppress(anyio.WouldBlock, anyio.BrokenResourceError):
                watcher.send_nowait(piece)

    def request(self) -> tuple[int, int] | None:
        """Return which request to the model is out: the turns before it, and the requests since the newest."""
        if self.loaded is None:
            return None
        state = self.loaded.live.state
        return state.turns, state.attempts

    def notify(self) -> None:
        """Wake those who watch."""
        self.on_change(self)
        if self.changed is not None:
            self.changed.set()
            self.changed = None

    def waiter(self) -> anyio.Event:
        """Return what is set at the next change."""
        if self.changed is None:
            self.changed = anyio.Event()
        return self.changed


class Entries(dict[str, Entry]):
    """Every run of this daemon by its id, and which of them each idempotency key has started."""

    def __init__(self, on_change: Callable[[Entry], None]) -> None:
        """`on_change` is told whenever what is shown of any of them may have changed."""
        super().__init__()
        self._on_change = on_change
        self._started_by: dict[str, str] = {}

    def add(self, run_id: str, index: Json, **members: Any) -> Entry:
        """Take in a run that was born or found; `members` are those of `Entry`."""
        entry = self[run_id] = Entry(run_id=run_id, index=index, on_change=self._on_change, **members)
        if type(key := index.get("idempotency_key")) is str:
            self._started_by[key] = run_id
        return entry

    def of(self, run_id: str) -> Entry:
        """Return a run by its id.

        Raises:
            NotFound: There is none, or it is no id of a run at all.
        """
        try:
            return self[parse_run_id(run_id)]
        except (KeyError, BadRequest):
            raise NotFound(f"there is no run {run_id[:80]!r}") from None

    def started_by(self, key: str) -> Entry | None:
        """Return the run that was started with this idempotency key."""
        return self.get(self._started_by.get(key, ""))

    def statuses(self) -> Counter[str]:
        """Return how many runs are shown with each status."""
        return Counter(str(entry.shown()["status"]) for entry in self.values())
