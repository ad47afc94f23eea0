"""Whatever ends a call ends its whole tree, and nothing but its tree."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from onward.ports.process import EndedBy, LaunchSpec, Trace
from onward.processes import LauncherSpawner
from onward.processes.evidence import probe, read_identity
from onward.processes.identity import open_process, same_process, start_ticks
from onward.processes.launcher_kernel import take_lock
from tests.processes.launching import (
    children,
    command,
    ended_at_its_deadline,
    exists,
    launcher_of,
    living,
    markers,
    printed,
    start_daemon,
)
from tests.support import eventually, until

# A server that ignores TERM, in a session of its own, whose parent is gone, and that has forgotten its markers.
STUBBORN = "trap '' TERM; echo $$ > stubborn; while :; do sleep 1; done"
TREE = f'(setsid env -i PATH="$PATH" sh -c "{STUBBORN.replace("$", chr(92) + "$")}" &) ; '


async def begun(spec: LaunchSpec, runs: Path) -> int:
    """The pid of the stubborn grandchild, once it and the command are there."""
    await eventually(lambda: printed(spec.call_dir, "begun") and printed(runs, "\n", "stubborn"))
    return int((runs / "stubborn").read_text())


@contextmanager
def runs_lock_held(runs: Path) -> Iterator[None]:
    fd = os.open(runs / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    take_lock(fd)
    try:
        yield
    finally:
        os.close(fd)


@pytest.mark.parametrize("by", [EndedBy.CANCEL, EndedBy.STOP])
async def test_an_end_reaches_the_whole_tree(tmp_path: Path, by: EndedBy) -> None:
    spec, spawner = command(tmp_path, TREE + "echo begun; sleep 60"), LauncherSpawner()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(spawner.run, spec)
        stubborn = await begun(spec, tmp_path)
        await spawner.end(spec.call_dir, by=by, grace_s=0.2)
        found = await to_thread.run_sync(probe, spec.call_dir)
    assert found.exit is not None
    assert (found.exit.code, found.exit.ended_by) == (-signal.SIGTERM, by)
    assert not await to_thread.run_sync(exists, stubborn)


async def test_a_deadline_ends_the_whole_tree(tmp_path: Path) -> None:
    waits = "while ! [ -s stubborn ]; do sleep 0.01; done; "
    spec = command(tmp_path, TREE + "trap '' TERM; " + waits + "echo begun; while :; do sleep 1; done")
    _, ended = await ended_at_its_deadline(LauncherSpawner(grace_s=0.2), spec)
    assert (ended.code, ended.ended_by) == (-signal.SIGKILL, EndedBy.DEADLINE)
    assert not await to_thread.run_sync(exists, int((tmp_path / "stubborn").read_text()))


async def test_what_a_command_leaves_behind_is_ended_and_its_own_end_is_recorded(tmp_path: Path) -> None:
    """The grandchild holds the pipes open, too: that must not keep the call from its end."""
    spec = command(tmp_path, TREE + "while ! [ -s stubborn ]; do sleep 0.01; done; echo done; exit 4")
    ended = await LauncherSpawner().run(spec)
    assert ended is not None
    assert (ended.code, ended.ended_by, ended.intact) == (4, EndedBy.ITSELF, True)
    assert not await to_thread.run_sync(exists, int((tmp_path / "stubborn").read_text()))


async def test_a_process_that_left_the_tree_and_holds_the_pipe_does_not_keep_the_call(tmp_path: Path) -> None:
    """A stranger (no child, no marker) was handed the pipe: the call ends without it, and it lives on."""
    spec, spawner = command(tmp_path, "echo begun; read line < go"), LauncherSpawner()
    os.mkfifo(tmp_path / "go")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(spawner.run, spec)
        await eventually(lambda: printed(spec.call_dir, "begun"))
        launcher = await to_thread.run_sync(launcher_of, spec.call_dir)
        (shell,) = await to_thread.run_sync(children, launcher)
        pipe = os.open(f"/proc/{shell}/fd/1", os.O_WRONLY)
        with stranger(stdout=pipe) as holder:
            os.close(pipe)
            await to_thread.run_sync((tmp_path / "go").write_text, "on\n")
            await eventually(lambda: probe(spec.call_dir).trace is Trace.EXITED)
            assert holder.poll() is None


@contextmanager
def stranger(**changes: object) -> "Iterator[subprocess.Popen[bytes]]":
    sleeper = subprocess.Popen(["/bin/sleep", "60"], **changes)  # type: ignore[call-overload]  # keywords of Popen
    try:
        yield sleeper
    finally:
        sleeper.kill()
        sleeper.wait(10)


async def test_an_orphan_is_ended_after_its_grace(tmp_path: Path) -> None:
    with runs_lock_held(tmp_path):
        spec = command(tmp_path, "echo begun; sleep 60", orphan_grace_s=0.3)
        daemon = await to_thread.run_sync(start_daemon, spec)
        await eventually(lambda: printed(spec.call_dir, "begun"))
        # Several graces long a daemon is there: nothing happens.
        with anyio.move_on_after(1.0):
            await eventually(lambda: probe(spec.call_dir).trace is not Trace.ALIVE)
        assert (await to_thread.run_sync(probe, spec.call_dir)).trace is Trace.ALIVE
    await to_thread.run_sync(daemon.wait)
    found = await to_thread.run_sync(probe, spec.call_dir)
    assert found.exit is not None
    assert (found.exit.code, found.exit.ended_by) == (-signal.SIGTERM, EndedBy.ORPHAN_GRACE)


async def test_a_launcher_that_hangs_is_killed_with_its_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onward.processes.spawn._HANG_S", 0.3)
    spec, spawner = command(tmp_path, "setsid sleep 60 & echo begun; wait"), LauncherSpawner()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(spawner.run, spec)
        await eventually(lambda: printed(spec.call_dir, "begun"))
        os.kill(await to_thread.run_sync(launcher_of, spec.call_dir), signal.SIGSTOP)
        await spawner.end(spec.call_dir, by=EndedBy.CANCEL, grace_s=0.1)
    assert (await to_thread.run_sync(probe, spec.call_dir)).trace is Trace.LOST
    assert not await to_thread.run_sync(living, tmp_path)


async def test_a_pid_that_was_used_again_is_never_signalled(tmp_path: Path) -> None:
    """`identity` names a living stranger: with other start ticks, another boot, or without the call's markers."""
    spec = command(tmp_path, "true")
    await LauncherSpawner().run(spec)
    recorded = await to_thread.run_sync(read_identity, spec.call_dir)
    assert recorded is not None
    with stranger() as sleeper:
        there = replace(recorded, pid=sleeper.pid)
        ticks = await to_thread.run_sync(start_ticks, sleeper.pid)
        assert ticks is not None
        for wrong in (there, replace(there, start_ticks=ticks), replace(there, pid=1), replace(there, boot_id="x")):
            assert not await to_thread.run_sync(same_process, wrong)
            assert await to_thread.run_sync(open_process, wrong) is None
        unmarked = replace(there, start_ticks=ticks, call={})
        assert await to_thread.run_sync(same_process, unmarked)


async def test_leftovers_are_told_from_kept_calls_and_from_strangers(tmp_path: Path) -> None:
    """Processes of a lost call are ended though their launcher is gone; nobody else's are."""
    run = str(tmp_path)
    spawner = LauncherSpawner(grace_s=0.2)

    def sleeper(call_id: str, instance: str) -> "subprocess.Popen[bytes]":
        # In a session of its own and deaf to TERM, like a server that a call left behind.
        script = "import signal, time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(60)"
        env = {"PATH": os.environ["PATH"], **markers(tmp_path, call_id, instance)}
        process = subprocess.Popen(
            [sys.executable, "-c", script], env=env, start_new_session=True, stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        return process

    mine, kept = run + "/mine", run + "/other"
    processes = {
        name: await to_thread.run_sync(sleeper, call_id, instance)
        for name, call_id, instance in (("left", "t1c1", mine), ("kept", "t1c2", mine), ("foreign", "t1c1", kept))
    }
    try:
        async with anyio.create_task_group() as tasks:
            # Reaped here, as init would: a zombie is no process that could be waited for in vain.
            tasks.start_soon(lambda: to_thread.run_sync(lambda: processes["left"].wait(30)))
            assert await spawner.end_leftovers(mine, frozenset({(run, "t1c2")})) == 1
        assert processes["left"].returncode == -signal.SIGKILL
        assert processes["kept"].poll() is None
        assert processes["foreign"].poll() is None
    finally:
        for process in processes.values():
            process.kill()
            process.wait(10)


async def test_a_daemon_below_its_own_marker_does_not_end_itself(tmp_path: Path) -> None:
    """A daemon that was started from within a call of its own instance carries that call's markers."""
    script = (
        "import anyio, sys; from onward.processes import LauncherSpawner;"
        "print(anyio.run(LauncherSpawner().end_leftovers, sys.argv[1], frozenset()))"
    )
    env = {**os.environ, **markers(tmp_path, "t1c1", str(tmp_path))}
    argv = [sys.executable, "-c", script, str(tmp_path)]
    done = await to_thread.run_sync(lambda: subprocess.run(argv, env=env, capture_output=True, timeout=30))
    assert (done.returncode, done.stdout) == (0, b"0\n")


def test_a_shutdown_that_signals_everybody_counts_as_a_stop(tmp_path: Path) -> None:
    """The command may be gone before its launcher has acted: it did not end by itself all the same."""
    spec = command(tmp_path, "echo begun; exec sleep 60")
    daemon = start_daemon(spec)
    until(lambda: printed(spec.call_dir, "begun"))
    launcher = launcher_of(spec.call_dir)
    (sleeping,) = children(launcher)
    os.kill(launcher, signal.SIGSTOP)
    os.kill(sleeping, signal.SIGTERM)
    os.kill(launcher, signal.SIGTERM)
    until(lambda: not exists(sleeping))
    os.kill(launcher, signal.SIGCONT)
    daemon.wait(20)
    found = probe(spec.call_dir)
    assert found.exit is not None
    assert (found.exit.code, found.exit.ended_by) == (-signal.SIGTERM, EndedBy.STOP)


def test_a_stopped_command_can_be_ended(tmp_path: Path) -> None:
    spec = command(tmp_path, "echo begun; kill -STOP $$; sleep 60")
    daemon = start_daemon(spec)
    until(lambda: printed(spec.call_dir, "begun"))
    os.kill(launcher_of(spec.call_dir), signal.SIGTERM)
    daemon.wait(20)
    found = probe(spec.call_dir)
    assert found.exit is not None
    assert (found.exit.code, found.exit.ended_by) == (-signal.SIGTERM, EndedBy.STOP)
