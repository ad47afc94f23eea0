"""Ending what earlier daemons of this instance left running: found by markers and in the cgroups of their calls.

Each is looked at again before it is signalled: a pid alone is nobody.
"""

import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress

import anyio
from anyio import to_thread

from onward.processes import launcher_cgroup as cgroup
from onward.processes.identity import MARKERS
from onward.processes.launcher_kernel import parse_stat, read_small

_ROUNDS = 20
_DYING_S = 2.0
_POLL_S = 0.01

Wanted = Callable[[dict[bytes, bytes]], bool]


async def end_leftovers(
    instance: str, keep: frozenset[tuple[str, str]], *, grace_s: float = 5.0, groups: Sequence[str] = ()
) -> int:
    """End every process that carries this instance's marker and a run id, except those of the calls in `keep`.

    TERM first, KILL after `grace_s`. Launchers carry the markers of their call, so they are kept or ended with it, and
    an ended one still records how. Never this process, one above it, or a stranger: a process without our markers that
    is in none of `groups`, the cgroups of calls that are not kept.

    Returns:
        How many processes were signalled.
    """
    kept = {(os.fsencode(run_id), os.fsencode(call_id)) for run_id, call_id in keep}
    ours = os.fsencode(instance)

    def wanted(env: dict[bytes, bytes]) -> bool:
        run_id, call_id = env.get(b"ONWARD_RUN_ID"), env.get(b"ONWARD_CALL_ID", b"")
        return env.get(b"ONWARD_INSTANCE") == ours and run_id is not None and (run_id, call_id) not in kept

    return await _end_all(wanted, grace_s, groups)


async def end_call(markers: frozenset[bytes], group: str | None = None) -> int:
    """KILL at once what is left of a call whose launcher is lost or hangs: all in its cgroup or with its markers.

    It is waited for, within reason: a group in which somebody still dies cannot be removed.
    """
    if group is not None:
        await to_thread.run_sync(cgroup.kill, group)
        with anyio.move_on_after(_DYING_S):
            while await to_thread.run_sync(cgroup.members, group):
                await anyio.sleep(_POLL_S)
                await to_thread.run_sync(cgroup.kill, group)
    if len(markers) < len(MARKERS):
        return 0
    expected = dict(marker.split(b"=", 1) for marker in markers)
    return await _end_all(lambda env: expected.items() <= env.items(), 0.0)


async def _end_all(wanted: Wanted, grace_s: float, groups: Sequence[str] = ()) -> int:
    """Signal in rounds until nobody is found: what forks while it is being ended is met in the next round."""
    ended: set[tuple[int, int]] = set()
    for number in range(_ROUNDS):
        number_sent = signal.SIGTERM if number == 0 and grace_s > 0 else signal.SIGKILL
        # In the second round commands alone are killed: their launchers write how they ended.
        found = await to_thread.run_sync(_signal_all, wanted, number_sent, groups, number == 1)
        if not found:
            break
        ended.update(found)
        await _wait_for_all(list(found.values()), grace_s if number_sent == signal.SIGTERM else _DYING_S)
    return len(ended)


def _signal_all(
    wanted: Wanted, number: int, groups: Sequence[str], spare_launchers: bool
) -> dict[tuple[int, int], int]:
    """Signal all that are wanted or in one of the groups; returns their pidfds by pid and start ticks.

    Launchers are spared where they are known by their group and somebody is still there for them to record.
    """
    spared = _ourselves()
    found: dict[tuple[int, int], int] = {}

    def is_wanted(pid: int) -> bool:
        return wanted(_environment(pid)) or any(pid in cgroup.members(group) for group in groups)

    grouped = {pid for group in groups for pid in cgroup.members(group)}
    for pid in sorted(grouped | {int(name) for name in os.listdir("/proc") if name.isdigit()}):
        if pid in spared or not (pid in grouped or wanted(_environment(pid))):
            continue
        try:
            fd = os.pidfd_open(pid)
        except OSError:
            continue
        # Looked at again through the open descriptor's eyes: if the pid was used again since, the signal meets nobody.
        parsed = parse_stat(read_small(f"/proc/{pid}/stat"))
        if parsed is None or not is_wanted(pid):
            os.close(fd)
            continue
        found[pid, parsed[1]] = fd
    launchers = {pid for group in groups for pid in cgroup.leaders(group)} if spare_launchers else set()
    for pid, ticks in list(found):
        if pid not in launchers and not _send(found[pid, ticks], number):
            os.close(found.pop((pid, ticks)))
    if number == signal.SIGKILL:
        for group in groups:
            cgroup.kill(f"{group}/{cgroup.COMMAND}")
    return found


def _send(fd: int, number: int) -> bool:
    try:
        signal.pidfd_send_signal(fd, number)
        if number == signal.SIGTERM:
            signal.pidfd_send_signal(fd, signal.SIGCONT)
    except OSError:
        return False
    return True


async def _wait_for_all(fds: list[int], timeout_s: float) -> None:
    try:
        with anyio.move_on_after(timeout_s):
            for fd in fds:
                await anyio.wait_readable(fd)
    finally:
        for fd in fds:
            with suppress(OSError):
                os.close(fd)


def _environment(pid: int) -> dict[bytes, bytes]:
    """Return the environment a process was started with; empty where it is gone, a zombie or not ours.

    Of a name that stands there twice the first counts, as for `getenv`.
    """
    environ: dict[bytes, bytes] = {}
    for pair in read_small(f"/proc/{pid}/environ").split(b"\0"):
        name, equals, value = pair.partition(b"=")
        if equals:
            environ.setdefault(name, value)
    return environ


def _ourselves() -> set[int]:
    """Return this process and all above it: a daemon started from a call of its own instance does not end itself."""
    pids: set[int] = set()
    pid = os.getpid()
    while pid > 0 and pid not in pids:
        pids.add(pid)
        parsed = parse_stat(read_small(f"/proc/{pid}/stat"))
        pid = parsed[0] if parsed else 0
    return pids
