"""Where runs live. Nothing outside an implementation of this port knows files."""

import errno
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from onward.core.masking import KnownSecrets
from onward.core.records import Json, Record, RunStarted
from onward.core.replay import Replay
from onward.core.state import RunState


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One run directory as the boot walk sees it, without having read its journal.

    `index` is meta.json where it may be believed (it describes the journal as it is now), else None: fold the run.
    `stale_index` is a whole meta.json that may not be believed: good for showing only. `problem`: it cannot be opened.
    """

    run_id: str
    index: Json | None
    stale_index: Json | None = None
    problem: str | None = None
    questions: tuple[Json, ...] = ()
    """The open questions of a run whose index is believed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """What stood beside the journal when a run was opened.

    `index_seq` is the seq that meta.json describes (None: there is no whole one), `call_dirs` the names in `calls/`.
    `torn` is where its torn end was kept when it was cut off now, None where it had none.
    """

    index_seq: int | None
    call_dirs: tuple[str, ...]
    torn: str | None = None


Decide = Callable[[], Sequence[Record]]
"""Says what is to be written, from the run's state at the moment of the call."""


def is_full(error: OSError) -> bool:
    """Whether the disk had no room: the same can succeed when there is some."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


class RunLog(Protocol):
    """One run, open for writing. Its state changes only by `append`, right after the record was written."""

    @property
    def state(self) -> RunState: ...

    @property
    def beside(self) -> Beside: ...

    @property
    def durable_seq(self) -> int:
        """The highest seq that survives a power cut."""
        ...

    on_durable: Callable[[int], None] | None

    async def append(self, *records: Record) -> int:
        """Write records in one piece and fold them; returns the seq of the last one. Not durable yet: `flush`.

        They become durable by themselves within 50 ms. Cancelling leaves either all or none written.

        Raises:
            DiskFull: No space. Nothing was written; the same call may be made again.
            StoreError: The journal is broken and must be opened again; nothing was written.
        """
        ...

    async def write(self, decide: Decide) -> int:
        """Write what `decide` returns, as `append`.

        It is asked at the very moment of writing, so that its answer fits the state that the records are written
        behind; and once more after each wait, which a long record needs. Whatever it raises ends the call.
        """
        ...

    async def flush(self) -> None:
        """Wait until everything appended so far is durable.

        Raises:
            StoreError: It could not be made durable. The log is dead: open the run again, which folds it from disk.
        """
        ...

    async def write_index(self, index: Json, sidecars: Mapping[str, list[Json]] | None = None) -> None:
        """Replace meta.json with `index` (its `journal` member is added here), after what it describes is durable.

        `sidecars` (`interactions`, `stages`) go before it, into files of their own, with the same `journal` member.

        Raises:
            StoreError: It was not replaced; the old one stands.
        """
        ...

    async def close(self) -> None:
        """Make everything durable and let go. Idempotent."""
        ...


class RunStore(Protocol):
    """All runs of one runs directory."""

    @property
    def instance(self) -> str:
        """The random id of this runs directory."""
        ...

    @property
    def machine_id(self) -> str: ...

    @property
    def runs_inode(self) -> int: ...

    @property
    def secrets(self) -> KnownSecrets:
        """The values that are masked in everything that is written; whoever learns of another adds it."""
        ...

    @property
    def lock_path(self) -> Path:
        """What launchers ask whether a daemon lives."""
        ...

    async def list_runs(self) -> list[Listed]:
        """Walk the runs directory; removes the leftovers of births and deaths that did not finish."""
        ...

    async def create(self, started: RunStarted) -> None:
        """Give birth to a run; it is durable when this returns.

        Raises:
            Conflict: The id exists.
            StoreError: The disk did not take it; nothing is left.
        """
        ...

    async def open(self, run_id: str) -> RunLog:
        """Open for writing: fold, set a torn tail aside, make durable what was read.

        Raises:
            NotFound, Unreadable, NotAJournal, NewerRecord, StoreError: Nothing was changed.
        """
        ...

    async def read(self, run_id: str) -> Replay:
        """Fold without changing anything.

        Raises:
            NotFound, Unreadable, NotAJournal, NewerRecord: As they say.
        """
        ...

    async def records(self, run_id: str, *, after: int, limit: int, up_to: int | None = None) -> list[Json]:
        """Return records with `after` < seq <= `up_to` (None: all), at most `limit`, in file order.

        Fewer than `limit`, but at least one, where they are many megabytes. Never what a torn tail holds.

        Raises:
            NotFound, Unreadable: As they say.
        """
        ...

    async def put_blob(self, run_id: str, data: bytes) -> str:
        """Keep bytes durably beside the journal; returns their sha-256. Idempotent."""
        ...

    async def call_dirs(self, run_id: str) -> list[str]:
        """Return the names in `calls/`."""
        ...

    def call_dir(self, run_id: str, call_id: str) -> Path:
        """Return where the evidence of a call lies, whether or not it exists."""
        ...

    async def make_call_dir(self, run_id: str, call_id: str) -> Path:
        """Make the call's directory; its ToolCallStarted must be durable before.

        Raises:
            StoreError: The disk did not take it.
        """
        ...

    async def remove_call_dir(self, run_id: str, call_id: str) -> None:
        """Remove the evidence of a call; its ToolCallDone must be durable before. Never raises for a missing one."""
        ...

    async def set_call_dirs_aside(self, run_id: str) -> None:
        """Rename whatever is in `calls/`, so that it is evidence of nothing any more; nothing is deleted."""
        ...

    async def renew_instance(self) -> None:
        """Give this runs directory another id: processes that carry the one before are strangers from now on.

        Raises:
            StoreError: The disk did not take it; it has the one before.
        """
        ...

    async def hold(self) -> str | None:
        """Return what stands in the file `HOLD` of the runs directory; None when there is none."""
        ...

    async def set_hold(self, why: str | None) -> None:
        """Write that file, durably, or (None) remove it. Idempotent.

        Raises:
            StoreError: The disk did not take it.
        """
        ...

    async def append_fact(self, **members: Any) -> None:
        """Append one line to daemon.jsonl and make it durable. `type` is among `members`."""
        ...

    async def facts(self) -> list[Json]:
        """Return the lines of daemon.jsonl, damaged ones left out."""
        ...

    async def close(self) -> None:
        """Close everything and let go of the lock."""
        ...
