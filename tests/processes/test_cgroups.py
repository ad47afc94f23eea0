"""Where a cgroup is delegated to the daemon, each call has its own, and nothing of a call gets away."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from onward.ports.process import EndedBy, LaunchSpec, Trace
from onward.processes import LauncherSpawner
from onward.processes import launcher_cgroup as kernel
from onward.processes.cgroups import CallGroups, Unit, find_unit, is_delegated, locate, trap
from onward.processes.evidence import probe, read_identity
from onward.processes.identity import open_process
from tests.processes.delegated import delegated_cgroup, within
from tests.processes.launching import command, ended_at_its_deadline, exists, launcher_of, printed
from tests.support import eventually, until

RUN = "worker-1"

# A server that ignores TERM, in a session of its own, whose parent is gone, and that has forgotten its markers.
SERVER = "trap '' TERM; echo $$ > server; echo begun; while :; do sleep 1; done"
LEAVES_A_SERVER = f'setsid env -i PATH="$PATH" sh -c "{SERVER.replace("$", chr(92) + "$")}" & '


@pytest.fixture
def groups() -> Iterator[CallGroups]:
    with delegated_cgroup() as group:
        (group / "calls").mkdir()
        yield CallGroups(Unit(path=group))


def call(runs: Path, script: str, call_id: str = "t1c1", instance: str | None = None, **changes: object) -> LaunchSpec:
    # An instance of its own, by which tests end processes: others may run at the same time.
    names = {"ONWARD_INSTANCE": instance or str(runs), "ONWARD_RUN_ID": RUN, "ONWARD_CALL_ID": call_id}
    return command(runs, script, call_id=call_id, env={"PATH": os.environ["PATH"], **names}, **changes)


async def server(runs: Path) -> int:
    await eventually(lambda: (runs / "server").exists() and (runs / "server").read_text().strip())
    return int((runs / "server").read_text())


async def test_launcher_and_command_have_their_groups_and_leave_none(groups: CallGroups, tmp_path: Path) -> None:
    spec, spawner = call(tmp_path, "echo begun; read line < go"), LauncherSpawner(groups=groups)
    os.mkfifo(tmp_path / "go")
    group = groups.path(RUN, "t1c1")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(spawner.run, spec)
        await eventually(lambda: printed(spec.call_dir, "begun"))
        launcher = await to_thread.run_sync(launcher_of, spec.call_dir)
        await eventually(lambda: kernel.leaders(str(group)) == [launcher])
        (shell,) = await to_thread.run_sync(kernel.members, str(group / "cmd"))
        assert shell != launcher
        await to_thread.run_sync((tmp_path / "go").write_text, "on\n")
    assert (await to_thread.run_sync(probe, spec.call_dir)).trace is Trace.EXITED
    assert not group.exists()


async def test_a_deadline_kills_what_forks_and_the_launcher_tells(groups: CallGroups, tmp_path: Path) -> None:
    """Each of them forks a hundred times a second, ignores TERM and lives in a session of its own."""
    forks = "trap '' TERM; while :; do setsid sleep 60 & sleep 0.01; done"
    spec = call(tmp_path, f"({forks}) & ({forks}) & trap '' TERM; echo begun; {forks}")
    spec, ended = await ended_at_its_deadline(LauncherSpawner(groups=groups, grace_s=0.1), spec)
    assert (ended.code, ended.ended_by) == (-signal.SIGKILL, EndedBy.DEADLINE)
    assert not groups.path(RUN, spec.call_dir.name).exists()


async def test_what_a_lost_launcher_leaves_is_found_without_a_marker(groups: CallGroups, tmp_path: Path) -> None:
    spec, spawner = call(tmp_path, LEAVES_A_SERVER + "wait"), LauncherSpawner(groups=groups)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(spawner.run, spec)
        pid = await server(tmp_path)
        os.kill(await to_thread.run_sync(launcher_of, spec.call_dir), signal.SIGKILL)
    assert (await to_thread.run_sync(probe, spec.call_dir)).trace is Trace.LOST
    assert not await to_thread.run_sync(exists, pid)
    assert not groups.path(RUN, "t1c1").exists()


async def test_leftovers_are_found_by_their_group_and_their_launchers_tell(groups: CallGroups, tmp_path: Path) -> None:
    """A call that is not kept is ended though its server has no marker; a kept one and another instance's live on."""
    spawner = LauncherSpawner(groups=groups, grace_s=0.2)
    mine = call(tmp_path, LEAVES_A_SERVER + "wait")
    others = [
        call(tmp_path, "echo begun; sleep 60", "t1c2"),
        call(tmp_path, "echo begun; sleep 60", "t1c3", f"{tmp_path}/else"),
    ]
    async with anyio.create_task_group() as tasks:
        for spec in (mine, *others):
            tasks.start_soon(spawner.run, spec)
            await eventually(lambda spec=spec: printed(spec.call_dir, "begun"))  # type: ignore[misc]
        pid = await server(tmp_path)
        assert await spawner.end_leftovers(str(tmp_path), frozenset({(RUN, "t1c2")})) >= 2
        ended = await to_thread.run_sync(probe, mine.call_dir)
        assert ended.exit is not None
        assert ended.exit.ended_by is EndedBy.STOP
        assert not await to_thread.run_sync(exists, pid)
        for spec in others:
            assert (await to_thread.run_sync(probe, spec.call_dir)).trace is Trace.ALIVE
            await spawner.end(spec.call_dir, by=EndedBy.STOP)


async def test_a_recorded_pid_counts_in_its_group_or_with_its_marker(groups: CallGroups, tmp_path: Path) -> None:
    spec, spawner = call(tmp_path, "echo begun; sleep 60"), LauncherSpawner(groups=groups)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(spawner.run, spec)
        await eventually(lambda: printed(spec.call_dir, "begun"))
        identity = await to_thread.run_sync(read_identity, spec.call_dir)
        assert identity is not None
        group = str(groups.path(RUN, "t1c1"))
        await eventually(lambda: kernel.leaders(group) == [identity.pid])
        renamed = type(identity)(
            pid=identity.pid,
            boot_id=identity.boot_id,
            start_ticks=identity.start_ticks,
            pid_ns=identity.pid_ns,
            call={**identity.call, "ONWARD_CALL_ID": "t9c9"},
        )
        assert await to_thread.run_sync(open_process, renamed) is None
        found = await to_thread.run_sync(open_process, renamed, group)
        assert found is not None
        os.close(found)
        await spawner.end(spec.call_dir, by=EndedBy.STOP)


def test_a_kernel_without_cgroup_kill_is_looped_over(groups: CallGroups, monkeypatch: pytest.MonkeyPatch) -> None:
    group = groups.unit.path / "calls" / "x"
    group.mkdir()
    forks = subprocess.Popen(within(group, ["/bin/sh", "-c", "while :; do sleep 60 & sleep 0.01; done"]))
    write = kernel.write
    monkeypatch.setattr(kernel, "write", lambda path, text: "kill" not in path and write(path, text))
    try:
        while len(kernel.members(str(group))) < 5:
            os.sched_yield()
    finally:
        kernel.kill(str(group))
        forks.wait(10)
    until(lambda: not kernel.members(str(group)))  # who was killed still has to die


def test_a_kernel_that_cannot_fork_into_a_group_moves_the_child(groups: CallGroups) -> None:
    script = (
        "import os, sys; from onward.processes import launcher_cgroup as kernel; kernel._SYS_CLONE3 = 9999;"
        "pid = kernel.fork_into(sys.argv[1]);"
        "print(open('/proc/self/cgroup').read() if pid == 0 else '', flush=True); pid and os.waitpid(pid, 0)"
    )
    argv = [sys.executable, "-c", script, str(groups.unit.path)]
    done = subprocess.run(argv, capture_output=True, timeout=30, check=True, text=True)
    assert groups.unit.path.name in done.stdout


async def test_memory_is_limited_for_each_process_where_no_controller_may_be_used(tmp_path: Path) -> None:
    from onward.processes.cgroups import Limits

    greedy = f"{sys.executable} -c 'bytearray(300 << 20)' 2>&1 | tail -n 1"
    spawner = LauncherSpawner(limits=Limits(memory_bytes=100 << 20))
    spec = command(tmp_path, greedy)
    await spawner.run(spec)
    assert (spec.call_dir / "stdout").read_text().strip() == "MemoryError"


def test_a_delegated_unit_is_told_by_its_mark() -> None:
    with delegated_cgroup() as group:
        (group / "daemon").mkdir()
        assert is_delegated(group)
        assert not is_delegated(group / "daemon")


@pytest.mark.parametrize(
    ("where", "exec_pid", "has_subgroup"), [("", "1", False), ("daemon", "$$", True), ("daemon", "1", False)]
)
def test_controllers_are_only_for_who_was_started_in_the_subgroup(
    where: str, exec_pid: str, has_subgroup: bool
) -> None:
    """`daemon/` is where a daemon moves itself, too: then the next one is started above it, beside its children."""
    asks = "from onward.processes.cgroups import find_unit; unit = find_unit(); print(unit.path, unit.has_subgroup)"
    with delegated_cgroup() as group:
        (group / "daemon").mkdir()
        argv = ["/bin/sh", "-c", f'SYSTEMD_EXEC_PID={exec_pid} exec "$@"', "sh", sys.executable, "-c", asks]
        done = subprocess.run(within(group / where, argv), capture_output=True, timeout=30, check=True, text=True)
        assert done.stdout.split() == [str(group), str(has_subgroup)]


def test_a_daemon_in_no_delegated_unit_says_so() -> None:
    assert "Delegate=yes" in getattr(find_unit(), "reason", "")


HYBRID = (
    "30 20 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs ro\n"
    "31 30 0:27 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw\n"
    "32 30 0:28 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
)


@pytest.mark.parametrize(
    ("cgroup", "mountinfo", "found"),
    [
        ("0::/system.slice/onward.service\n", HYBRID, "/sys/fs/cgroup/unified/system.slice/onward.service"),
        ("9:pids:/x\n0::/\n", HYBRID, "/sys/fs/cgroup/unified"),
        ("9:pids:/x\n", HYBRID, None),
        ("0::/a/b\n", "31 30 0:27 /a /mnt/two\\040words rw - cgroup2 cgroup2 rw\n", "/mnt/two words/b"),
        ("0::/ab\n", "31 30 0:27 /a /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", None),
        ("0::/a\n", "31 30 0:27 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n", None),
    ],
)
def test_the_group_of_a_process_is_found_whatever_is_mounted(cgroup: str, mountinfo: str, found: str | None) -> None:
    assert locate(cgroup, mountinfo) == (None if found is None else Path(found))


def test_an_enabled_controller_is_told_with_its_remedy_the_deepest_first(tmp_path: Path) -> None:
    """Files in place of the kernel's: which controllers a machine has is its own affair."""
    unit = tmp_path / "onward.service"
    for name, enabled in (("", "memory pids\n"), ("calls", "pids\n"), ("daemon", "")):
        (unit / name).mkdir(exist_ok=True)
        (unit / name / "cgroup.subtree_control").write_text(enabled)
    found = trap(unit)
    assert found is not None
    text, remedy = found
    assert f"memory pids is enabled in {unit}/cgroup.subtree_control" in text
    first, second = f"echo '-pids' > {unit}/calls/cgroup", f"echo '-memory -pids' > {unit}/cgroup"
    assert 0 < remedy.index(first) < remedy.index(second)
    (unit / "cgroup.subtree_control").write_text("\n")
    assert trap(unit) is None
