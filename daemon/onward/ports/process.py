"""Starting, finding again and ending the processes of tool calls."""

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol


class EndedBy(StrEnum):
    """Who ended a launched command."""

    ITSELF = "itself"
    DEADLINE = "deadline"
    ORPHAN_GRACE = "orphan_grace"
    CANCEL = "cancel"
    STOP = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSpec:
    """One command to run under the launcher.

    `call_dir` exists and is empty. `env` is the command's whole environment. `deadline_s` None means no limit.
    At most `head_bytes + tail_bytes` of each output stream are kept (first and last bytes, the middle is counted);
    `tail_bytes` None keeps everything.
    """

    argv: tuple[str, ...]
    cwd: str
    env: dict[str, str] = field(repr=False)
    call_dir: Path
    runs_lock: Path
    deadline_s: float | None = None
    orphan_grace_s: float = 600.0
    head_bytes: int = 1 << 20
    tail_bytes: int | None = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class CallExit:
    """How a launched command ended: the launcher's `exit` file.

    `code` is the exit status, or minus the signal number. `intact` says that the output files have the lengths
    recorded here; `stdout_dropped` and `stderr_dropped` count the bytes of the middle that were not kept. `why` is a
    reason for a `STOP` that no record holds: only the daemon that ended the call knows it.
    """

    code: int
    ended_by: EndedBy
    duration_s: float
    intact: bool
    stdout_dropped: int = 0
    stderr_dropped: int = 0
    why: str | None = None


class Trace(StrEnum):
    """What `calls/<call_id>` shows of a call (design: the tool-call delivery contract)."""

    NONE = "none"  # no such directory
    ALIVE = "alive"  # its launcher holds its lock
    EXITED = "exited"  # a whole exit record
    FENCED = (
        "fenced"  # no launcher ever took `identity`; our fence stands there now: the command never ran and never will
    )
    LOST = "lost"  # it was started and is gone without an exit record


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTrace:
    """The evidence about one call. `exit` is set only for `EXITED`; `pid` is the launcher's.

    `boot_id` is the one recorded in the `identity` that stands there, a launcher's or a fence's. A fence of another
    boot than the hand-over's proves nothing: a power cut may have taken the launcher's identity.
    """

    trace: Trace
    exit: CallExit | None = None
    pid: int | None = None
    boot_id: str | None = None


class ProcessSpawner(Protocol):
    """Runs commands that outlive the daemon."""

    async def run(self, spec: LaunchSpec) -> CallExit | None:
        """Launch and wait for the end; None when the launcher was lost without an exit record.

        What then survives of its tree is ended first. Cancelling the wait leaves the command running: it is found again
        by `probe` and `adopt`.

        Raises:
            OSError: Nothing was started (no processes or descriptors left, fenced before it began) and nothing will be.
        """
        ...

    def probe(self, call_dir: Path) -> CallTrace:
        """Look without changing anything. Blocks: call it in a thread.

        A call without `identity` is `NONE`, whether or not its directory exists: its launcher may still come.
        """
        ...

    def fence(self, call_dir: Path) -> CallTrace:
        """Look, and make sure that a call that has not started never will. Idempotent. Blocks: call it in a thread.

        `NONE` means that there is no directory: no launcher was ever told of the call.

        Raises:
            OSError: The fence could not be written.
        """
        ...

    async def adopt(self, call_dir: Path) -> CallExit | None:
        """Wait for a living call of an earlier daemon; None when it was lost without an exit record.

        One that has ended already answers at once. Cancelling the wait leaves the command running.
        """
        ...

    def outputs(self, call_dir: Path) -> tuple[bytes, bytes]:
        """Read the kept stdout and stderr of a call, at most 2 MiB each; what is missing is empty. Blocks.

        Works on a living call too: what it has printed so far.
        """
        ...

    async def end(self, call_dir: Path, *, by: EndedBy, grace_s: float = 5.0) -> None:
        """Ask the launcher to end its whole tree (TERM, after `grace_s` KILL) and wait until it has recorded that.

        `CANCEL` is recorded as such, anything else as `STOP`. A call that has not started yet is fenced (its `run`
        raises), one that has ended is left as it is.
        """
        ...

    async def end_leftovers(self, instance: str, keep: frozenset[tuple[str, str]]) -> int:
        """End every process of this instance whose (run_id, call_id) is not in `keep`; returns how many were ended.

        Only processes that carry a run's marker: servers shared by all runs are not touched, nor is any stranger.
        """
        ...
