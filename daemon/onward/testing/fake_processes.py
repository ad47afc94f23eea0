"""A process spawner in memory: commands are scripted, time stands still, evidence lives in this object.

One `FakeProcesses` is the machine: a test that restarts its daemon hands the same object to the next one, and finds the
calls of the last one alive, ended, lost or fenced. Only `stdout` and `stderr` are real files of the call's directory.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import anyio
from anyio import lowlevel, to_thread

from onward.ports.process import CallExit, CallTrace, EndedBy, LaunchSpec, Trace

BOOT_ID = "00000000-0000-4000-8000-000000000001"


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeCommand:
    """What a command does: it prints, and ends at once unless it `waits` for `finish`, `end` or `lose`.

    `error` is raised by `run` instead: nothing was started.
    """

    code: int = 0
    stdout: bytes = b""
    stderr: bytes = b""
    waits: bool = False
    error: OSError | None = None


@dataclass(slots=True)
class _Call:
    spec: LaunchSpec
    pid: int
    trace: Trace = Trace.ALIVE
    exit: CallExit | None = None
    over: anyio.Event = field(default_factory=anyio.Event)


def _succeed(_spec: LaunchSpec) -> FakeCommand:
    return FakeCommand()


class FakeProcesses:
    """Implements `ProcessSpawner`. `commands` says what each launched command does; the default succeeds silently."""

    def __init__(self, commands: Callable[[LaunchSpec], FakeCommand] = _succeed) -> None:
        self.commands = commands
        self.launched: list[LaunchSpec] = []
        self.boot_id = BOOT_ID
        self._calls: dict[Path, _Call] = {}
        self._fences: dict[Path, str] = {}
        self._next_pid = 1000

    async def run(self, spec: LaunchSpec) -> CallExit | None:
        await lowlevel.checkpoint()
        if spec.call_dir in self._fences:
            raise FileExistsError(17, "the launcher could not start the command: File exists", str(spec.call_dir))
        command = self.commands(spec)
        if command.error is not None:
            raise command.error
        self.launched.append(spec)
        self._next_pid += 1
        call = self._calls[spec.call_dir] = _Call(spec, self._next_pid)
        await to_thread.run_sync(_write_outputs, spec, command)
        if not command.waits:
            self.finish(spec.call_dir, command.code, command=command)
        await call.over.wait()
        return call.exit

    def probe(self, call_dir: Path) -> CallTrace:
        if call_dir in self._fences:
            return CallTrace(trace=Trace.FENCED, boot_id=self._fences[call_dir])
        call = self._calls.get(call_dir)
        if call is None:
            return CallTrace(trace=Trace.NONE)
        return CallTrace(trace=call.trace, exit=call.exit, pid=call.pid, boot_id=self.boot_id)

    def fence(self, call_dir: Path) -> CallTrace:
        if call_dir not in self._calls and call_dir.is_dir():
            self._fences.setdefault(call_dir, self.boot_id)
        return self.probe(call_dir)

    async def adopt(self, call_dir: Path) -> CallExit | None:
        await lowlevel.checkpoint()
        call = self._calls.get(call_dir)
        if call is None:
            return None
        await call.over.wait()
        return call.exit

    def outputs(self, call_dir: Path) -> tuple[bytes, bytes]:
        stdout, stderr = (call_dir / name for name in ("stdout", "stderr"))
        return (
            stdout.read_bytes() if stdout.is_file() else b"",
            stderr.read_bytes() if stderr.is_file() else b"",
        )

    async def end(self, call_dir: Path, *, by: EndedBy, grace_s: float = 5.0) -> None:
        await lowlevel.checkpoint()
        if (await to_thread.run_sync(self.fence, call_dir)).trace is Trace.ALIVE:
            self.finish(call_dir, -15, ended_by=EndedBy.CANCEL if by is EndedBy.CANCEL else EndedBy.STOP)

    async def end_leftovers(self, instance: str, keep: frozenset[tuple[str, str]]) -> int:
        await lowlevel.checkpoint()
        ended = 0
        for call_dir, call in self._calls.items():
            env = call.spec.env
            mine = env.get("ONWARD_INSTANCE") == instance and "ONWARD_RUN_ID" in env
            kept = (env.get("ONWARD_RUN_ID", ""), env.get("ONWARD_CALL_ID", "")) in keep
            if mine and not kept and call.trace is Trace.ALIVE:
                self.finish(call_dir, -15, ended_by=EndedBy.STOP)
                ended += 1
        return ended

    def finish(
        self,
        call_dir: Path,
        code: int = 0,
        *,
        ended_by: EndedBy = EndedBy.ITSELF,
        duration_s: float = 0.0,
        intact: bool = True,
        command: FakeCommand | None = None,
    ) -> None:
        """Let a waiting command end, by itself unless `ended_by` says otherwise."""
        call = self._calls[call_dir]
        shown = command or FakeCommand()
        call.trace = Trace.EXITED
        call.exit = CallExit(
            code=code,
            ended_by=ended_by,
            duration_s=duration_s,
            intact=intact,
            stdout_dropped=len(shown.stdout) - len(_bounded(shown.stdout, call.spec)),
            stderr_dropped=len(shown.stderr) - len(_bounded(shown.stderr, call.spec)),
        )
        call.over.set()

    def lose(self, call_dir: Path) -> None:
        """Let the launcher of a waiting command die without an exit record."""
        self._calls[call_dir].trace = Trace.LOST
        self._calls[call_dir].over.set()

    def reboot(self, boot_id: str) -> None:
        """Lose every living call; fences from now on carry `boot_id`."""
        for call_dir, call in self._calls.items():
            if call.trace is Trace.ALIVE:
                self.lose(call_dir)
        self.boot_id = boot_id


def _write_outputs(spec: LaunchSpec, command: FakeCommand) -> None:
    for name, data in (("stdout", command.stdout), ("stderr", command.stderr)):
        (spec.call_dir / name).write_bytes(_bounded(data, spec))


def _bounded(data: bytes, spec: LaunchSpec) -> bytes:
    if spec.tail_bytes is None or len(data) <= spec.head_bytes + spec.tail_bytes:
        return data
    return data[: spec.head_bytes] + data[len(data) - spec.tail_bytes :]
