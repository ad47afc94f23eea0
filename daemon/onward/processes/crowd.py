"""Who is ended when no process can be started any more: the limit is shared by the daemon and all calls."""

import errno
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import anyio
import structlog
from anyio import to_thread

from onward.processes import evidence
from onward.processes import launcher_cgroup as cgroup
from onward.processes.cgroups import CallGroups
from onward.processes.identity import MARKERS, open_process, split_markers
from onward.processes.launcher_kernel import read_small

log = structlog.get_logger()
T = TypeVar("T")

HANG_S = 10.0
CROWD = 32
"""A call with fewer tasks is not to blame: something else on the machine has used them up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """The call that is ended, and why."""

    call_dir: Path
    markers: frozenset[bytes]
    tasks: int

    @property
    def call(self) -> dict[str, str]:
        named = split_markers(self.markers)
        return {"run_id": named["ONWARD_RUN_ID"], "call_id": named["ONWARD_CALL_ID"]}


def greediest(tasks: Mapping[Path, int]) -> Path | None:
    """Return the call with the most tasks, None if none has many; of equals the one whose name comes first."""
    if not tasks:
        return None
    most = min(tasks, key=lambda call_dir: (-tasks[call_dir], call_dir))
    return most if tasks[most] >= CROWD else None


class Crowds:
    """The calls that are waited for, and what was done so that others could begin."""

    def __init__(self, groups: CallGroups | None) -> None:
        self._groups = groups
        self._calls: dict[Path, frozenset[bytes]] = {}
        self._ended: dict[Path, str] = {}
        self._dispersing = anyio.Lock()
        self._dispersed = 0

    @contextmanager
    def noted(self, call_dir: Path, markers: frozenset[bytes]) -> Iterator[None]:
        """Keep a call among those that run while it is waited for."""
        if markers:
            self._calls[call_dir] = markers
        try:
            yield
        finally:
            self._calls.pop(call_dir, None)

    def why(self, call_dir: Path) -> str | None:
        """Return once why a call was ended here."""
        return self._ended.pop(call_dir, None)

    async def launched(self, launch: Callable[[], T]) -> T:
        """Return what `launch` returns, in a thread; if need be after a call that has taken all processes was ended.

        Raises:
            OSError: It cannot be started.
        """
        for _ in range(2):
            dispersed = self._dispersed
            try:
                return await to_thread.run_sync(launch)
            except OSError as error:
                if error.errno != errno.EAGAIN:
                    raise
                async with self._dispersing:  # many may wait for the same end
                    if dispersed == self._dispersed and not await self._end_one():
                        raise
        return await to_thread.run_sync(launch)

    async def _end_one(self) -> bool:
        """End the call with the most processes; False where none has many."""
        crowd = await to_thread.run_sync(find_crowd, dict(self._calls), self._groups)
        if crowd is None:
            return False
        told = "call ended: no process could be started any more, and it had the most"
        log.error(told, tasks=crowd.tasks, **crowd.call)
        self._ended[crowd.call_dir] = f"it had {crowd.tasks} processes and threads, and no other could be started"
        await self._disperse(crowd)
        self._dispersed += 1
        return True

    async def _disperse(self, crowd: Crowd) -> None:
        """Let its launcher kill the command at once; that needs no process of ours."""
        identity = await to_thread.run_sync(evidence.read_identity, crowd.call_dir)
        group = None if self._groups is None else self._groups.of(crowd.markers)
        if identity is None:
            return
        fd = await to_thread.run_sync(open_process, identity, None if group is None else str(group))
        if fd is None:
            return
        try:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(fd, signal.SIGTERM)
                signal.pidfd_send_signal(fd, signal.SIGUSR2)
            with anyio.move_on_after(HANG_S):
                await anyio.wait_readable(fd)
        finally:
            os.close(fd)


def find_crowd(calls: Mapping[Path, frozenset[bytes]], groups: CallGroups | None) -> Crowd | None:
    """Return the call to be ended so that another can begin. Blocks.

    Args:
        calls: The markers of the calls that run, by their directories.
        groups: Where their cgroups are.
    """
    known = {call_dir: groups.of(markers) if groups else None for call_dir, markers in calls.items()}
    marked = _marked() if None in known.values() else Counter[frozenset[bytes]]()
    tasks = {
        call_dir: sum(map(_tasks, cgroup.members(str(group)))) if group else marked[calls[call_dir]]
        for call_dir, group in known.items()
    }
    chosen = greediest(tasks)
    return None if chosen is None else Crowd(call_dir=chosen, markers=calls[chosen], tasks=tasks[chosen])


def _marked() -> Counter[frozenset[bytes]]:
    """Count the tasks of every call by what its processes carry."""
    names = tuple(f"{name}=".encode() for name in MARKERS)
    found = Counter[frozenset[bytes]]()
    for name in os.listdir("/proc"):
        if name.isdigit():
            environ = read_small(f"/proc/{name}/environ").split(b"\0")
            markers = frozenset(pair for pair in environ if pair.startswith(names))
            if len(markers) == len(MARKERS):
                found[markers] += _tasks(int(name))
    return found


def _tasks(pid: int) -> int:
    fields = read_small(f"/proc/{pid}/stat").rpartition(b") ")[2].split()
    return int(fields[17]) if len(fields) > 17 else 0  # num_threads, field 20 of proc(5)
