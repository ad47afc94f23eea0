"""What every process spawner promises, asked of the real one and of the fake."""

import errno
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import anyio
import pytest
from anyio import to_thread

from onward.ports.process import EndedBy, LaunchSpec, ProcessSpawner, Trace
from onward.processes import LauncherSpawner
from onward.testing.fake_processes import FakeCommand, FakeProcesses
from tests.support import eventually

T = TypeVar("T")

# The same commands twice: for a shell, and for the fake.
SCRIPTS = {
    "print": ("echo out; echo err >&2", FakeCommand(stdout=b"out\n", stderr=b"err\n")),
    "fail": ("exit 3", FakeCommand(code=3)),
    "die": ("kill -9 $$", FakeCommand(code=-9)),
    "flood": ("echo head; seq 9999; echo tail", FakeCommand(stdout=b"head\n" + b"x" * 48888 + b"tail\n")),
    "wait": ("echo begun; sleep 60", FakeCommand(stdout=b"begun\n", waits=True)),
}


def fake_command(spec: LaunchSpec) -> FakeCommand:
    return next(command for script, command in SCRIPTS.values() if script == spec.argv[2])


@dataclass
class Machine:
    """One machine with a runs directory. `daemon()` is a spawner of a new daemon on it."""

    daemon: Callable[[], ProcessSpawner]
    runs: Path

    def spec(self, name: str, call_id: str = "t1c1", **changes: int) -> LaunchSpec:
        call_dir = self.runs / call_id
        call_dir.mkdir(mode=0o700, exist_ok=True)
        markers = {"ONWARD_INSTANCE": str(self.runs), "ONWARD_RUN_ID": "worker-1", "ONWARD_CALL_ID": call_id}
        return LaunchSpec(
            argv=("/bin/sh", "-c", SCRIPTS[name][0]),
            cwd="/",
            env={"PATH": "/usr/bin:/bin"} | markers,
            call_dir=call_dir,
            runs_lock=self.runs / ".lock",
            **changes,
        )


@pytest.fixture(params=["launcher", "fake"])
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Machine:
    if request.param == "launcher":
        return Machine(LauncherSpawner, tmp_path)
    world = FakeProcesses(fake_command)
    return Machine(lambda: world, tmp_path)


async def look(way: Callable[[Path], T], call_dir: Path) -> T:
    """Looking blocks, so it is done in a thread."""
    return await to_thread.run_sync(way, call_dir)


async def begun(spawner: ProcessSpawner, spec: LaunchSpec) -> None:
    def printed() -> bool:
        return spawner.probe(spec.call_dir).trace is Trace.ALIVE and spawner.outputs(spec.call_dir)[0] == b"begun\n"

    await eventually(printed)


@pytest.mark.parametrize(
    ("name", "code", "outputs"),
    [("print", 0, (b"out\n", b"err\n")), ("fail", 3, (b"", b"")), ("die", -9, (b"", b""))],
)
async def test_a_command_runs_to_its_own_end(
    machine: Machine, name: str, code: int, outputs: tuple[bytes, bytes]
) -> None:
    spawner, spec = machine.daemon(), machine.spec(name)
    ended = await spawner.run(spec)
    assert ended is not None
    assert (ended.code, ended.ended_by, ended.intact) == (code, EndedBy.ITSELF, True)
    assert await look(spawner.outputs, spec.call_dir) == outputs
    assert (await look(spawner.probe, spec.call_dir)).trace is Trace.EXITED
    assert (await look(spawner.probe, spec.call_dir)).exit == ended


async def test_head_and_tail_are_kept_and_the_middle_is_counted(machine: Machine) -> None:
    spawner, spec = machine.daemon(), machine.spec("flood", head_bytes=5, tail_bytes=5)
    ended = await spawner.run(spec)
    assert ended is not None
    assert (await look(spawner.outputs, spec.call_dir))[0] == b"head\ntail\n"
    assert (ended.stdout_dropped, ended.stderr_dropped, ended.intact) == (48888, 0, True)


async def test_a_cancelled_wait_leaves_the_command_running_and_the_next_daemon_adopts_it(machine: Machine) -> None:
    spawner, spec = machine.daemon(), machine.spec("wait")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(spawner.run, spec)
        await begun(spawner, spec)
        tasks.cancel_scope.cancel()
    later = machine.daemon()
    found = await look(later.fence, spec.call_dir)
    assert (found.trace, found.exit) == (Trace.ALIVE, None)
    assert found.pid is not None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: later.end(spec.call_dir, by=EndedBy.CANCEL))
        ended = await later.adopt(spec.call_dir)
    assert ended is not None
    assert (ended.code, ended.ended_by) == (-15, EndedBy.CANCEL)


@pytest.mark.parametrize(("by", "recorded"), [(EndedBy.CANCEL, EndedBy.CANCEL), (EndedBy.STOP, EndedBy.STOP)])
async def test_an_ended_call_says_who_ended_it(machine: Machine, by: EndedBy, recorded: EndedBy) -> None:
    spawner, spec = machine.daemon(), machine.spec("wait")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(spawner.run, spec)
        await begun(spawner, spec)
        await spawner.end(spec.call_dir, by=by)
        found = await look(spawner.probe, spec.call_dir)
    assert found.exit is not None
    assert (found.trace, found.exit.ended_by) == (Trace.EXITED, recorded)


async def test_ending_a_call_that_has_ended_changes_nothing(machine: Machine) -> None:
    spawner, spec = machine.daemon(), machine.spec("print")
    ended = await spawner.run(spec)
    await spawner.end(spec.call_dir, by=EndedBy.CANCEL)
    assert (await look(spawner.probe, spec.call_dir)).exit == ended
    assert await spawner.adopt(spec.call_dir) == ended


async def test_looking_never_answers_for_a_call_that_may_still_start(machine: Machine) -> None:
    spawner, spec = machine.daemon(), machine.spec("print")
    assert (await look(spawner.probe, machine.runs / "t9c9")).trace is Trace.NONE
    assert (await look(spawner.fence, machine.runs / "t9c9")).trace is Trace.NONE
    assert (await look(spawner.probe, spec.call_dir)).trace is Trace.NONE


@pytest.mark.parametrize("how", ["fence", "end"])
async def test_a_fenced_call_never_runs(machine: Machine, how: str) -> None:
    spawner, spec = machine.daemon(), machine.spec("print")
    if how == "fence":
        await look(spawner.fence, spec.call_dir)
    else:
        await spawner.end(spec.call_dir, by=EndedBy.CANCEL)
    first = await look(spawner.fence, spec.call_dir)
    assert (first.trace, bool(first.boot_id)) == (Trace.FENCED, True)
    with pytest.raises(OSError, match="could not start") as raised:
        await spawner.run(spec)
    assert raised.value.errno == errno.EEXIST
    assert await look(spawner.outputs, spec.call_dir) == (b"", b"")
    assert await look(spawner.fence, spec.call_dir) == first


async def test_leftovers_are_ended_but_for_kept_calls_and_strangers(machine: Machine) -> None:
    spawner = machine.daemon()
    specs = [machine.spec("wait", call_id) for call_id in ("t1c1", "t1c2")]
    async with anyio.create_task_group() as tasks:
        for spec in specs:
            tasks.start_soon(spawner.run, spec)
            await begun(spawner, spec)
        assert await spawner.end_leftovers("another instance", frozenset()) == 0
        ended = await spawner.end_leftovers(str(machine.runs), frozenset({("worker-1", "t1c1")}))
        assert ended >= 1
        assert (await look(spawner.probe, specs[0].call_dir)).trace is Trace.ALIVE
        await eventually(lambda: spawner.probe(specs[1].call_dir).trace is Trace.EXITED)
        await spawner.end(specs[0].call_dir, by=EndedBy.STOP)
