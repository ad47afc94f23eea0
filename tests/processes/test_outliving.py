"""A command outlives its daemon, is found again or fenced, and runs at most once."""

import os
import signal
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from onward.ports.process import EndedBy, Trace
from onward.processes import LauncherSpawner
from onward.processes.evidence import fence, probe
from tests.processes.launching import children, command, exists, kill, launcher_of, living, printed, start_daemon
from tests.support import eventually, state_of, until


async def go_on(runs: Path) -> None:
    await to_thread.run_sync((runs / "go").write_text, "on\n")


async def test_a_command_outlives_its_daemon_and_its_result_is_adopted(tmp_path: Path) -> None:
    spec = command(tmp_path, "echo begun; read line < go; echo $line", cwd=str(tmp_path))
    os.mkfifo(tmp_path / "go")
    daemon = await to_thread.run_sync(start_daemon, spec)
    await eventually(lambda: printed(spec.call_dir, "begun"))
    await to_thread.run_sync(kill, daemon)
    spawner = LauncherSpawner()
    assert (await to_thread.run_sync(spawner.fence, spec.call_dir)).trace is Trace.ALIVE
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(go_on, tmp_path)
        ended = await spawner.adopt(spec.call_dir)
    assert ended is not None
    assert (ended.code, ended.ended_by, ended.intact) == (0, EndedBy.ITSELF, True)
    assert (await to_thread.run_sync(spawner.outputs, spec.call_dir))[0] == b"begun\non\n"


async def test_a_command_that_ended_while_no_daemon_ran_is_adopted(tmp_path: Path) -> None:
    spec = command(tmp_path, "echo begun; read line < go; exit 5")
    os.mkfifo(tmp_path / "go")
    daemon = await to_thread.run_sync(start_daemon, spec)
    await eventually(lambda: printed(spec.call_dir, "begun"))
    await to_thread.run_sync(kill, daemon)
    await go_on(tmp_path)
    await eventually(lambda: probe(spec.call_dir).trace is Trace.EXITED)
    spawner = LauncherSpawner()
    ended = await spawner.adopt(spec.call_dir)
    assert ended is not None
    assert ended.code == 5
    assert (await to_thread.run_sync(spawner.fence, spec.call_dir)).exit == ended


def test_a_launcher_that_comes_after_the_fence_starts_nothing(tmp_path: Path) -> None:
    """The launcher stops right before it takes `identity`; recovery fences; then the launcher goes on."""
    spec = command(tmp_path, "touch effect")
    daemon = start_daemon(spec, ONWARD_LAUNCHER_FAULT="launcher.before_identity=stop")
    (launcher,) = until(lambda: children(daemon.pid))
    until(lambda: list(spec.call_dir.glob("identity.*.tmp")))
    kill(daemon)
    assert probe(spec.call_dir).trace is Trace.NONE
    assert fence(spec.call_dir).trace is Trace.FENCED
    os.kill(launcher, signal.SIGCONT)
    until(lambda: not exists(launcher))
    assert not (tmp_path / "effect").exists()
    assert sorted(file.name for file in spec.call_dir.iterdir()) == ["identity", "stderr", "stdout"]
    assert fence(spec.call_dir).trace is Trace.FENCED


def test_a_slow_launcher_that_took_its_identity_is_not_fenced(tmp_path: Path) -> None:
    spec = command(tmp_path, "touch effect")
    daemon = start_daemon(spec, ONWARD_LAUNCHER_FAULT="launcher.after_identity=stop")
    launcher = launcher_of(spec.call_dir)
    kill(daemon)
    assert fence(spec.call_dir).trace is Trace.ALIVE
    os.kill(launcher, signal.SIGCONT)
    until(lambda: probe(spec.call_dir).trace is Trace.EXITED)
    assert (tmp_path / "effect").exists()


def test_a_command_dies_with_its_launcher_and_the_call_is_lost(tmp_path: Path) -> None:
    spec = command(tmp_path, "echo begun; exec sleep 60")
    daemon = start_daemon(spec)
    until(lambda: printed(spec.call_dir, "begun"))
    launcher = launcher_of(spec.call_dir)
    (sleeping,) = children(launcher)
    kill(daemon)
    os.kill(launcher, signal.SIGKILL)
    until(lambda: not exists(sleeping))
    until(lambda: probe(spec.call_dir).trace is Trace.LOST)
    assert fence(spec.call_dir).trace is Trace.LOST


async def test_what_survives_of_a_lost_call_is_ended_before_it_is_answered(tmp_path: Path) -> None:
    spec = command(tmp_path, "setsid sleep 60 & echo begun; wait")
    spawner = LauncherSpawner()
    async with anyio.create_task_group() as tasks:

        async def run() -> None:
            assert await spawner.run(spec) is None
            assert not await to_thread.run_sync(living, tmp_path)

        tasks.start_soon(run)
        await eventually(lambda: printed(spec.call_dir, "begun") and len(living(tmp_path)) >= 3)
        os.kill(await to_thread.run_sync(launcher_of, spec.call_dir), signal.SIGKILL)
    assert await spawner.adopt(spec.call_dir) is None


@pytest.mark.parametrize(
    ("point", "trace"),
    [
        ("launcher.before_identity", Trace.NONE),
        ("launcher.after_identity", Trace.LOST),
        ("launcher.before_exec", Trace.LOST),
        ("launcher.before_exit", Trace.LOST),
        ("launcher.exit_written", Trace.LOST),
        ("launcher.after_exit", Trace.EXITED),
    ],
)
def test_a_launcher_that_dies_anywhere_leaves_true_evidence(tmp_path: Path, point: str, trace: Trace) -> None:
    spec = command(tmp_path, "touch effect")
    daemon = start_daemon(spec, ONWARD_LAUNCHER_FAULT=f"{point}=stop")
    (launcher,) = until(lambda: children(daemon.pid))
    until(lambda: state_of(launcher) == "T")
    kill(daemon)
    os.kill(launcher, signal.SIGKILL)
    until(lambda: probe(spec.call_dir).trace is trace)
    assert (tmp_path / "effect").exists() is ("exit" in point)


async def test_a_launcher_that_dies_before_its_identity_raises_and_is_fenced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = command(tmp_path, "touch effect")
    monkeypatch.setenv("ONWARD_LAUNCHER_FAULT", "launcher.before_identity=kill")
    with pytest.raises(OSError, match="could not start"):
        await LauncherSpawner().run(spec)
    assert (await to_thread.run_sync(probe, spec.call_dir)).trace is Trace.FENCED


async def test_no_space_for_an_identity_raises_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = command(tmp_path, "touch effect")
    monkeypatch.setenv("ONWARD_LAUNCHER_FAULT", "launcher.before_identity=enospc")
    with pytest.raises(OSError, match="No space left") as raised:
        await LauncherSpawner().run(spec)
    assert raised.value.errno == 28
    assert not (tmp_path / "effect").exists()


async def test_a_launcher_seen_from_another_pid_namespace_is_waited_for_by_its_lock(tmp_path: Path) -> None:
    """Pid and ticks say nothing there, so only the lock can tell."""
    spec = command(tmp_path, "echo begun; read line < go")
    os.mkfifo(tmp_path / "go")
    daemon = await to_thread.run_sync(start_daemon, spec)
    await eventually(lambda: printed(spec.call_dir, "begun"))
    await to_thread.run_sync(kill, daemon)
    identity = spec.call_dir / "identity"
    with identity.open("r+") as file:  # in place: the lock is on this file
        text = file.read()
        file.seek(0)
        file.write(text.replace('"pid_ns": ', '"pid_ns": 9'))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(go_on, tmp_path)
        ended = await LauncherSpawner().adopt(spec.call_dir)
    assert ended is not None
    assert ended.code == 0
