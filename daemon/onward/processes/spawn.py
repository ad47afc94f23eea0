"""The process spawner: every command runs under a launcher that outlives this daemon."""

import json
import marshal
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import anyio
from anyio import to_thread

from onward.ports.process import CallExit, CallTrace, EndedBy, LaunchSpec, Trace
from onward.processes import evidence, tree
from onward.processes.identity import MARKERS, Identity, marker_set, open_process

_LAUNCHER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "launcher.py")
_POLL_S = 0.2
_HANG_S = 10.0


class LauncherSpawner:
    """Runs commands under launchers. One per daemon; safe to use from many tasks."""

    def __init__(self, *, launcher_python: str = sys.executable, grace_s: float = 5.0) -> None:
        """Take the interpreter for launchers, and the seconds from TERM to KILL at a deadline and for what is left."""
        self._python = launcher_python
        self._grace_s = grace_s
        self._children: dict[int, _Child] = {}

    async def run(self, spec: LaunchSpec) -> CallExit | None:
        """Launch and wait for the end; None when the launcher was lost without an exit record (its tree is ended then).

        Cancelling the wait leaves the command running: it is found again by `probe` and `adopt`.

        Raises:
            OSError: Nothing was started and nothing will be: no launcher came to be, or the directory is fenced.
        """
        self._reap()
        child = await to_thread.run_sync(self._launch, spec)
        await self._wait_for_child(child)
        found = await self._when_free(spec.call_dir)
        if found.trace is Trace.NONE:
            # Between the launcher's end and this line nobody can have started it, but let nobody later either.
            found = await to_thread.run_sync(evidence.fence, spec.call_dir)
        if found.trace in (Trace.NONE, Trace.FENCED):
            status = child.status or 0
            reason = os.strerror(status) if 0 < status < 255 else "it ended early"
            raise OSError(status, f"the launcher could not start the command: {reason}", str(spec.call_dir))
        if found.exit is None:
            await tree.end_call(marker_set(spec.env))
        return found.exit

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
            async with _process(identity) as fd:
                if fd is not None:
                    await anyio.wait_readable(fd)
        self._reap()
        found = await self._when_free(call_dir)
        if found.trace is Trace.LOST and identity is not None:
            await tree.end_call(identity.markers)
        return found.exit

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
        found = await to_thread.run_sync(evidence.fence, call_dir)
        identity = await to_thread.run_sync(evidence.read_identity, call_dir)
        if found.trace is not Trace.ALIVE:
            return
        if identity is not None:
            async with _process(identity) as fd:
                if fd is not None:
                    await _insist(fd, signal.SIGUSR1 if by is EndedBy.CANCEL else signal.SIGTERM, grace_s)
            self._reap()
            if (await to_thread.run_sync(evidence.probe, call_dir)).trace is not Trace.EXITED:
                await tree.end_call(identity.markers)
        await self._when_free(call_dir)

    async def end_leftovers(self, instance: str, keep: frozenset[tuple[str, str]]) -> int:
        """End every process of this instance whose (run_id, call_id) is not in `keep`; see `tree.end_leftovers`."""
        ended = await tree.end_leftovers(instance, keep, grace_s=self._grace_s)
        self._reap()
        return ended

    def _launch(self, spec: LaunchSpec) -> "_Child":
        """Start the launcher and hand it the spec. In a thread: the parent stands still until the exec."""
        # In memory and written before the start: never half there, and nothing of it is in a process list.
        handed = os.memfd_create("onward-launch", os.MFD_CLOEXEC)
        try:
            os.write(handed, _encode(spec, self._grace_s))
            os.lseek(handed, 0, os.SEEK_SET)
            pid = os.posix_spawn(
                self._python,
                [self._python, "-I", "-S", _LAUNCHER],
                _launcher_environment(spec),
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
        child = self._children[pid] = _Child(os.pidfd_open(pid))
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
                child.status = 255
            else:
                if ended is None:
                    continue
                child.status = ended.si_status if ended.si_code == os.CLD_EXITED else 255
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
    status: int | None = None


@asynccontextmanager
async def _process(identity: Identity) -> AsyncIterator[int | None]:
    fd = await to_thread.run_sync(open_process, identity)
    try:
        yield fd
    finally:
        if fd is not None:
            os.close(fd)


async def _insist(fd: int, first: signal.Signals, grace_s: float) -> None:
    """Ask, tell that the grace is over, then kill the launcher, and its command with it."""
    for number, timeout_s in ((first, grace_s), (signal.SIGUSR2, _HANG_S), (signal.SIGKILL, _HANG_S)):
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(fd, number)
        with anyio.move_on_after(timeout_s):
            await anyio.wait_readable(fd)
            return


def _encode(spec: LaunchSpec, grace_s: float) -> bytes:
    """Return the spec as the launcher reads it: bytes throughout, so its locale does not matter."""
    about = {name: spec.env[name] for name in MARKERS if name in spec.env}
    return marshal.dumps(
        {
            "argv": [os.fsencode(part) for part in spec.argv],
            "cwd": os.fsencode(spec.cwd),
            "env": {os.fsencode(name): os.fsencode(value) for name, value in spec.env.items()},
            "call_dir": os.fsencode(os.path.abspath(spec.call_dir)),
            "runs_lock": os.fsencode(os.path.abspath(spec.runs_lock)),
            "deadline_s": spec.deadline_s,
            "grace_s": grace_s,
            "orphan_grace_s": spec.orphan_grace_s,
            "head_bytes": spec.head_bytes,
            "tail_bytes": spec.tail_bytes,
            "about": json.dumps(about),
        }
    )


def _launcher_environment(spec: LaunchSpec) -> dict[str, str]:
    """Return the launcher's own small environment: the markers by which it is found, and its fault points in tests."""
    env = {name: spec.env[name] for name in MARKERS if name in spec.env}
    if "LD_LIBRARY_PATH" in os.environ:  # without it some interpreters do not start
        env["LD_LIBRARY_PATH"] = os.environ["LD_LIBRARY_PATH"]
    if faults := os.environ.get("ONWARD_LAUNCHER_FAULT"):
        env["ONWARD_FAULT"] = faults
    return env
