"""How a command is started: its surroundings, what is hidden, what it costs, and what happens when it cannot start."""

import errno
import json
import os
import signal
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread

from onward.ports.process import CallExit, EndedBy, LaunchSpec, Trace
from onward.processes import LauncherSpawner
from onward.processes.evidence import fence, outputs, probe
from onward.processes.identity import boot_id, parse_identity, pid_namespace, start_ticks
from onward.processes.launcher_kernel import lock_is_held, parse_stat, take_lock
from tests.processes.launching import children, command, exists, launcher_of, markers, printed, start_daemon
from tests.support import eventually, until


async def run(spec: LaunchSpec) -> tuple[CallExit, str, str]:
    spawner = LauncherSpawner()
    ended = await spawner.run(spec)
    assert ended is not None
    stdout, stderr = await to_thread.run_sync(spawner.outputs, spec.call_dir)
    return ended, stdout.decode(), stderr.decode()


SURROUNDINGS = """
umask; pwd; echo $$; cut -d' ' -f6 /proc/$$/stat; cat; cat /proc/$$/oom_score_adj
grep SigIgn /proc/self/status; grep SigBlk /proc/self/status; tr '\\0' '\\n' < /proc/$$/environ; exec ls /proc/self/fd
"""


async def test_a_command_gets_exactly_its_surroundings(tmp_path: Path) -> None:
    """The usual umask, no input, a session of its own, no descriptor and no signal of ours, only its environment."""
    spec = command(tmp_path, SURROUNDINGS)
    ended, out, err = await run(spec)
    umask, cwd, pid, session, oom, ignored, blocked, *env = out.splitlines()
    assert (ended.code, err, umask, cwd, session, oom) == (0, "", "0022", str(tmp_path), pid, "500")
    # 32 and 33 are the threading library's own; no program can set them.
    assert [int(mask.split()[1], 16) & ~(3 << 31) for mask in (ignored, blocked)] == [0, 0]
    # 3 is the directory that `ls` itself has opened.
    assert env == [*(f"{name}={value}" for name, value in spec.env.items()), "0", "1", "2", "3"]


async def test_what_a_program_is_told_is_passed_byte_by_byte(tmp_path: Path) -> None:
    odd = os.fsdecode(b"\xff\xfe caf\xc3\xa9\n")
    spec = command(tmp_path, "", argv=("/usr/bin/printf", "%s|%s", odd, "$HOME"), env={"X": odd, "PATH": "/bin"})
    spawner = LauncherSpawner()
    await spawner.run(spec)
    assert (await to_thread.run_sync(spawner.outputs, spec.call_dir))[0] == os.fsencode(odd) + b"|$HOME"


async def test_a_command_line_and_environment_of_a_megabyte_arrive(tmp_path: Path) -> None:
    """More than a pipe holds: the daemon hands it over without waiting for the launcher."""
    env = {"PATH": os.environ["PATH"], **{f"V{number}": "x" * 100_000 for number in range(10)}}
    _, out, _ = await run(command(tmp_path, "env | wc -c", env=env))
    assert int(out) > 1_000_000


def test_no_secret_is_in_a_process_list_or_in_the_evidence(tmp_path: Path) -> None:
    spec = command(tmp_path, "echo begun; sleep 60", env={"PATH": os.environ["PATH"], "TOKEN": "hush-hush"})
    daemon = start_daemon(spec)
    until(lambda: printed(spec.call_dir, "begun"))
    launcher = launcher_of(spec.call_dir)
    for name in ("cmdline", "environ"):
        assert b"hush" not in Path(f"/proc/{launcher}/{name}").read_bytes()
    assert b"hush" not in (spec.call_dir / "identity").read_bytes()
    assert {file.stat().st_mode & 0o777 for file in spec.call_dir.iterdir()} == {0o600}
    os.kill(launcher, signal.SIGTERM)
    daemon.wait(20)


def test_identity_says_who_the_launcher_is(tmp_path: Path) -> None:
    spec = command(tmp_path, "echo begun; exec sleep 60")
    daemon = start_daemon(spec)
    until(lambda: printed(spec.call_dir, "begun"))
    launcher = launcher_of(spec.call_dir)
    identity = parse_identity((spec.call_dir / "identity").read_bytes())
    assert identity is not None
    assert (identity.pid, identity.start_ticks) == (launcher, start_ticks(launcher))
    assert (identity.boot_id, identity.pid_ns) == (boot_id(), pid_namespace())
    assert identity.call == markers(tmp_path, "t1c1")
    assert os.getsid(launcher) == launcher
    os.kill(launcher, signal.SIGTERM)
    daemon.wait(20)


def test_exit_says_all_that_the_protocol_asks(tmp_path: Path) -> None:
    spec = command(tmp_path, "echo out; exit 2")
    start_daemon(spec).wait(20)
    found = json.loads((spec.call_dir / "exit").read_bytes())
    assert 0 < found.pop("duration_s") < 20
    stream = {"protocol": 1, "dropped": 0, "head": 1 << 20}
    outputs = {"stdout": stream | {"length": 4}, "stderr": stream | {"length": 0}}
    assert found == {"protocol": 1, "code": 2, "ended_by": "itself"} | outputs


@pytest.mark.parametrize(
    ("changes", "code", "text"),
    [
        ({"argv": ("no-such-program",)}, 127, "No such file or directory: no-such-program"),
        ({"argv": ("/no/such/program",)}, 127, "No such file or directory: /no/such/program"),
        ({"argv": ("/etc/passwd",)}, 126, "Permission denied: /etc/passwd"),
        ({"argv": ("passwd",), "env": {"PATH": "/nowhere:/etc:/etc/passwd"}}, 126, "Permission denied: passwd"),
        ({"cwd": "/no/such/place"}, 126, "No such file or directory: /no/such/place"),
        ({"argv": ("/bin/echo", "x" * (1 << 18))}, 126, "Argument list too long: /bin/echo"),
    ],
)
async def test_a_command_that_cannot_be_executed_says_why(
    tmp_path: Path, changes: dict[str, Any], code: int, text: str
) -> None:
    ended, out, err = await run(command(tmp_path, "true", **changes))
    assert (ended.code, ended.ended_by, out) == (code, EndedBy.ITSELF, "")
    assert err == f"onward: cannot run: {text}\n"


@pytest.mark.parametrize("missing", ["directory", "python"])
async def test_what_cannot_be_launched_raises(tmp_path: Path, missing: str) -> None:
    spec = command(tmp_path, "true")
    spawner = LauncherSpawner(launcher_python="/no/such/python") if missing == "python" else LauncherSpawner()
    if missing == "directory":
        await to_thread.run_sync(spec.call_dir.rmdir)
    with pytest.raises(FileNotFoundError):
        await spawner.run(spec)
    assert (await to_thread.run_sync(probe, spec.call_dir)).trace is Trace.NONE


async def test_fifty_launches_leave_no_descriptor_and_no_zombie(tmp_path: Path) -> None:
    spawner = LauncherSpawner()
    await spawner.run(command(tmp_path, "true", call_id="t0c0"))
    before = len(await to_thread.run_sync(os.listdir, "/proc/self/fd"))
    earlier = set(await to_thread.run_sync(children, os.getpid()))  # of other tests in this process
    async with anyio.create_task_group() as tasks:
        for number in range(50):
            tasks.start_soon(spawner.run, command(tmp_path, "true", call_id=f"t1c{number}"))
    assert len(await to_thread.run_sync(os.listdir, "/proc/self/fd")) == before
    mine = set(await to_thread.run_sync(children, os.getpid())) - earlier
    assert not [pid for pid in mine if not await to_thread.run_sync(exists, pid)]


async def test_a_launcher_nobody_waits_for_is_reaped_with_the_next_call(tmp_path: Path) -> None:
    spawner, spec = LauncherSpawner(), command(tmp_path, "echo begun; read line < go")
    os.mkfifo(tmp_path / "go")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(spawner.run, spec)
        await eventually(lambda: printed(spec.call_dir, "begun"))
        launcher = await to_thread.run_sync(launcher_of, spec.call_dir)
        tasks.cancel_scope.cancel()
    await to_thread.run_sync((tmp_path / "go").write_text, "on\n")
    await eventually(lambda: probe(spec.call_dir).trace is Trace.EXITED)
    await spawner.run(command(tmp_path, "true", call_id="t1c2"))
    assert await to_thread.run_sync(start_ticks, launcher) is None


async def test_a_descriptor_that_leaks_from_the_daemon_does_not_hold_its_lock(tmp_path: Path) -> None:
    """A launcher that had the daemon's lock file open would keep the lock of a dead daemon for ever."""
    fd = os.open(tmp_path / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    take_lock(fd)
    os.set_inheritable(fd, True)
    spec = command(tmp_path, "echo begun; sleep 60")
    spawner = LauncherSpawner()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(spawner.run, spec)
        await eventually(lambda: printed(spec.call_dir, "begun"))
        os.close(fd)
        again = os.open(tmp_path / ".lock", os.O_RDWR)
        assert not lock_is_held(again)
        os.close(again)
        await spawner.end(spec.call_dir, by=EndedBy.STOP)


@pytest.mark.slow
async def test_two_hundred_launchers_that_ask_for_the_lock_never_keep_a_daemon_from_it(tmp_path: Path) -> None:
    """Each asks about ten times a second while the lock is taken and given back again and again."""
    spawner = LauncherSpawner()
    file = os.open(tmp_path / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    specs = [command(tmp_path, "exec sleep 60", call_id=f"t1c{n}", orphan_grace_s=2.0) for n in range(200)]
    async with anyio.create_task_group() as tasks:
        for spec in specs:
            tasks.start_soon(spawner.run, spec)
        await eventually(lambda: probe(specs[-1].call_dir).trace is Trace.ALIVE, 60)
        os.close(file)

        def take_again_and_again() -> int:
            taken = 0
            while any(probe(spec.call_dir).trace is Trace.ALIVE for spec in specs):
                fd = os.open(tmp_path / ".lock", os.O_RDWR)
                take_lock(fd)  # raises at once if anybody holds it
                os.close(fd)
                taken += 1
            return taken

        assert await to_thread.run_sync(take_again_and_again) > 10
    ended = {(await to_thread.run_sync(probe, spec.call_dir)).exit for spec in specs}
    assert {found and found.ended_by for found in ended} == {EndedBy.ORPHAN_GRACE}


def test_asking_for_a_lock_never_takes_it(tmp_path: Path) -> None:
    mine, other = (os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT, 0o600) for _ in range(2))
    assert (lock_is_held(mine), lock_is_held(other)) == (False, False)
    take_lock(mine)
    assert (lock_is_held(mine), lock_is_held(other)) == (False, True)
    with pytest.raises(OSError, match="temporarily") as raised:
        take_lock(other)
    assert raised.value.errno in (errno.EAGAIN, errno.EACCES)
    os.close(mine)
    assert not lock_is_held(other)
    os.close(other)


async def test_two_fences_agree(tmp_path: Path) -> None:
    spec = command(tmp_path, "true")
    first, second = [await to_thread.run_sync(fence, spec.call_dir) for _ in range(2)]
    assert first == second
    assert (first.trace, first.boot_id) == (Trace.FENCED, await to_thread.run_sync(boot_id))
    assert [file.name for file in spec.call_dir.iterdir()] == ["identity"]
    assert await to_thread.run_sync(outputs, spec.call_dir) == (b"", b"")


@pytest.mark.parametrize(
    ("stat", "parsed"),
    [
        (b"12 (a b) c) S 7 12 12 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 1 2", (7, 4711)),
        (b"", None),
        (b"12 (sh) S 7", None),
    ],
)
def test_the_fields_of_a_stat_are_found_behind_any_name(stat: bytes, parsed: tuple[int, int] | None) -> None:
    assert parse_stat(stat) == parsed
