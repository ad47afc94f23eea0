"""The process spawner: every command runs under a launcher that outlives this daemon."""

import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import anyio
import structlog
from anyio import to_thread

from onward.errors import StoreError
from onward.ports.process import CallExit, CallTrace, EndedBy, LaunchSpec, Trace
from onward.processes import evidence, tree
from onward.processes import launcher_cgroup as cgroup
from onward.processes.cgroups import CallGroups, Limits
from onward.processes.crowd import Crowds
from onward.processes.handover import encode, launcher_environment
from onward.processes.identity import Identity, marker_set, open_process

_LAUNCHER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "launcher.py")
_POLL_S = 0.2
_HANG_S = 10.0
_FENCE_AGAIN_S = 1.0
KILLED = 255
"""Stands for the exit status of a launcher that gave none, or no errno."""

log = structlog.get_logger()


class LauncherSpawner:
    """Runs commands under launchers. One per daemon; safe to use from many tasks."""

    def __init__(
        self,
        *,
        launcher_python: str = sys.executable,
        grace_s: float = 5.0,
        groups: CallGroups | None = None,
        limits: Limits | None = None,
    ) -> None:
        """Make a spawner.

        Args:
            launcher_python: The interpreter for launchers.
            grace_s: Seconds from TERM to KILL at a deadline, and for what is left.
            groups: The cgroups of calls; None: there are none, and processes are found by descent and by marker.
            limits: What a call may use.
        """
        self._python = launcher_python
        self._grace_s = grace_s
        self._groups = groups
        # Where the kernel does not hold the call as a whole to it, each process of it is.
        limited = groups is not None and groups.limits_calls
        self._data_bytes = 0 if limits is None or limited else limits.memory_bytes
        self._children: dict[int, _Child] = {}
        self._crowds = Crowds(groups)

    async def run(self, spec: LaunchSpec) -> CallExit | None:
        """Launch and wait for the end; None when the launcher was lost without an exit record (its tree is ended then).

        Cancelling the wait leaves the command running: it is found again by `probe` and `adopt`.

        Raises:
            OSError: Nothing was started and nothing will be: no launcher came to be, or the directory is fenced.
                Evidence that is gone or unreadable afterwards is no such error: the call is lost then.
        """
        self._reap()
        child = await self._crowds.launched(partial(self._launch, spec))
        with self._crowds.noted(spec.call_dir, child.markers):
            await self._wait_for_child(child)
        found = await self._after(child)
        if found.trace in (Trace.NONE, Trace.FENCED):
            status = child.status or 0
            reason = os.strerror(status) if 0 < status < KILLED else "it ended early"
            raise OSError(status, f"the launcher could not start the command: {reason}", str(spec.call_dir))
        return await self._over(spec.call_dir, found, child.markers)

    async def _after(self, child: "_Child") -> CallTrace:
        """Return what a launcher of ours has left: it ran its command unless it says that something prevented it."""
        prevented = child.status is not None and 0 < child.status < KILLED
        try:
            found = await self._when_free(child.call_dir)
            if found.trace is Trace.NONE and not prevented:
                # Between the launcher's end and this line nobody can have started it, but let nobody later either.
                found = await self._fenced(child.call_dir)
        except StoreError:
            return CallTrace(trace=Trace.LOST)
        taken_away = found.trace is Trace.NONE or (found.trace is Trace.FENCED and child.status == 0)
        return CallTrace(trace=Trace.LOST) if taken_away and not prevented else found

    def probe(self, call_dir: Path) -> CallTrace:
        """Look at a call without changing anything; see `evidence.probe`."""
        return evidence.probe(call_dir)

    def fence(self, call_dir: Path) -> CallTrace:
        """Look, and make sure that a call that has not started never will; see `evidence.fence`."""
        return evidence.fence(call_dir)

    async def adopt(self, call_dir: Path) -> CallExit | None:
        """Wait for a living call, of this or an earlier daemon; None when it was lost (its tree is ended then).

        A call that has already ended answers at once. Cancelling the wait leaves the command running.
        """
        identity = await to_thread.run_sync(evidence.read_identity, call_dir)
        if identity is not None:
            with self._crowds.noted(call_dir, identity.markers):
                async with self._process(identity) as fd:
                    if fd is not None:
                        await anyio.wait_readable(fd)
        self._reap()
        found = await self._when_free(call_dir)
        if identity is None:
            return found.exit
        return await self._over(call_dir, found, identity.markers)

    def outputs(self, call_dir: Path) -> tuple[bytes, bytes]:
        """Read the kept stdout and stderr of a call; see `evidence.outputs`."""
        return evidence.outputs(call_dir)

    async def end(self, call_dir: Path, *, by: EndedBy, grace_s: float = 5.0) -> None:
        """Ask the launcher to end its whole tree (TERM, after `grace_s` KILL) and wait until it has recorded that.

        A call that has not started yet is fenced instead: its `run` raises and nothing ever runs. One that has ended is
        left as it is. `by` is `CANCEL`, anything else is recorded as `STOP`. A launcher that does not answer is
        killed with its tree after ten more seconds: the call is lost then. Graces over a minute end after one if this
        daemon dies meanwhile.
        """
        self._reap()
        # A launcher of ours is known whatever stands in its directory by now.
        own = next((child for child in list(self._children.values()) if child.call_dir == call_dir), None)
        if (await self._fenced(call_dir)).trace is not Trace.ALIVE and own is None:
            return
        identity = await to_thread.run_sync(evidence.read_identity, call_dir)
        markers = own.markers if own is not None else identity.markers if identity is not None else frozenset[bytes]()
        async with self._process(identity, own) as fd:
            if fd is not None:
                await _insist(fd, signal.SIGUSR1 if by is EndedBy.CANCEL else signal.SIGTERM, grace_s)
        self._reap()
        if (await to_thread.run_sync(evidence.probe, call_dir)).trace is not Trace.EXITED and markers:
            await tree.end_call(markers, self._group(markers))
        await self._when_free(call_dir)

    async def _fenced(self, call_dir: Path) -> CallTrace:
        """Fence, however long the disk has no room for it."""
        said = False
        while True:
            try:
                return await to_thread.run_sync(evidence.fence, call_dir)
            except OSError as error:
                if not said:
                    log.error("call cannot be fenced yet", call_dir=str(call_dir), error=str(error))
                said = True
                await anyio.sleep(_FENCE_AGAIN_S)

    async def end_leftovers(self, instance: str, keep: frozenset[tuple[str, str]]) -> int:
        """End every process of this instance whose (run_id, call_id) is not in `keep`; see `tree.end_leftovers`."""
        groups = [] if self._groups is None else await to_thread.run_sync(self._groups.leftovers, instance, keep)
        names = [str(group) for group in groups]
        ended = await tree.end_leftovers(instance, keep, grace_s=self._grace_s, groups=names)
        self._reap()
        for name in names:
            await to_thread.run_sync(cgroup.remove, name)
        return ended

    async def _over(self, call_dir: Path, found: CallTrace, markers: frozenset[bytes]) -> CallExit | None:
        """Clear away what is left of a call that is over; return how it ended, and why where only we know that."""
        group = self._group(markers)
        if found.trace is Trace.LOST:
            await tree.end_call(markers, group)
        if group is not None:
            await to_thread.run_sync(cgroup.remove, group)
        why = self._crowds.why(call_dir)
        if found.exit is None or why is None or found.exit.ended_by is not EndedBy.STOP:
            return found.exit
        return replace(found.exit, why=why)

    def _group(self, markers: frozenset[bytes]) -> str | None:
        group = None if self._groups is None else self._groups.of(markers)
        return None if group is None else str(group)

    @asynccontextmanager
    async def _process(self, identity: Identity | None, own: "_Child | None" = None) -> AsyncIterator[int | None]:
        """Open the launcher, a child of ours by what we know of it ourselves."""
        if own is not None and own.status is None:
            fd: int | None = os.dup(own.pidfd)
        elif identity is not None:
            fd = await to_thread.run_sync(open_process, identity, self._group(identity.markers))
        else:
            fd = None
        try:
            yield fd
        finally:
            if fd is not None:
                os.close(fd)

    def _launch(self, spec: LaunchSpec) -> "_Child":
        """Start the launcher and hand it the spec. In a thread: the parent stands still until the exec."""
        group = None if self._groups is None else self._groups.make(spec.env)
        # In memory and written before the start: never half there, and nothing of it is in a process list.
        handed = os.memfd_create("onward-launch", os.MFD_CLOEXEC)
        try:
            os.write(handed, encode(spec, self._grace_s, group, self._data_bytes))
            os.lseek(handed, 0, os.SEEK_SET)
            pid = os.posix_spawn(
                self._python,
                [self._python, "-I", "-S", _LAUNCHER],
                launcher_environment(spec),
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, handed, 0),
                    (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
                ],
                setsid=True,
            )
        finally:
            os.close(handed)
        # Noted here, not by who waits: the wait may be cancelled, and the child must be reaped all the same.
        child = self._children[pid] = _Child(os.pidfd_open(pid), spec.call_dir, marker_set(spec.env))
        if group is not None:
            # The kernel takes 10 ms and more for this: from here they pass while the launcher's interpreter starts.
            cgroup.move_to(str(group), pid)
        return child

    async def _wait_for_child(self, child: "_Child") -> None:
        if child.status is None:
            fd = os.dup(child.pidfd)  # another task may reap it, and close the original, while we wait
            try:
                await anyio.wait_readable(fd)
            finally:
                os.close(fd)
        self._reap()

    def _reap(self) -> None:
        """Collect launchers of ours that have ended, waited for or not, so that none stays a zombie."""
        for pid, child in list(self._children.items()):
            try:
                ended = os.waitid(os.P_PIDFD, child.pidfd, os.WEXITED | os.WNOHANG)
            except ChildProcessError:
                child.status = KILLED
            else:
                if ended is None:
                    continue
                child.status = ended.si_status if ended.si_code == os.CLD_EXITED else KILLED
            del self._children[pid]
            os.close(child.pidfd)

    async def _when_free(self, call_dir: Path) -> CallTrace:
        """Return what is there once the lock is free.

        At once where the launcher was waited for; else (another pid namespace) the lock itself has to be asked.
        """
        while True:
            found = await to_thread.run_sync(evidence.probe, call_dir)
            if found.trace is not Trace.ALIVE:
                return found
            await anyio.sleep(_POLL_S)


@dataclass(slots=True)
class _Child:
    """A launcher of this process; `status` is its exit status once it was reaped, and `pidfd` is closed then."""

    pidfd: int
    call_dir: Path
    markers: frozenset[bytes]
    status: int | None = None


async def _insist(fd: int, first: signal.Signals, grace_s: float) -> None:
    """Ask, tell that the grace is over, then kill the launcher, and its command with it."""
    for number, timeout_s in ((first, grace_s), (signal.SIGUSR2, _HANG_S), (signal.SIGKILL, _HANG_S)):
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(fd, number)
        with anyio.move_on_after(timeout_s):
            await anyio.wait_readable(fd)
            return
