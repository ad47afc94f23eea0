"""A call's own cgroup, by its directory: who is in it, ending them all at once. Standard library only; see launcher.py.

The launcher is in the group itself, its command in `cmd` below: what is killed there never takes the launcher along,
which is to write how the command ended.
"""

import _ctypes
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal

    from onward.processes import launcher_kernel as kernel
elif __package__:
    import _signal

    from onward.processes import launcher_kernel as kernel
else:
    import _signal

    import launcher_kernel as kernel

COMMAND = "cmd"
ROUNDS = 100

_SYS_CLONE3, _CLONE_INTO_CGROUP = 435, 0x200000000
_SYSCALL = _ctypes.dlsym(_ctypes.dlopen(None, 0), "syscall")  # type: ignore[arg-type]  # typeshed: None is allowed


def fork_into(group: str) -> int:
    """Fork; the child begins its life in `group`, or moves there where the kernel or a filter knows no such fork.

    To move costs 10 ms and more (the kernel waits until no process forks anywhere), to begin there nothing.

    Raises:
        OSError: There is no child.
    """
    try:
        fd = os.open(group, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return os.fork()
    # `struct clone_args`: flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid,
    # set_tid_size, cgroup. No memory is shared, so for this process of one thread it is what fork() is.
    words = (_CLONE_INTO_CGROUP, 0, 0, 0, int(_signal.SIGCHLD), 0, 0, 0, 0, 0, fd)
    args = b"".join(word.to_bytes(8, sys.byteorder) for word in words)
    pid = int(_ctypes.call_function(_SYSCALL, (_SYS_CLONE3, args, len(args), 0, 0)))
    if pid < 0:  # ENOSYS, EPERM, no such flag, or no process is left: fork() tells the last one from the others
        pid = os.fork()
        if pid == 0:
            move_to(group, 0)
    os.close(fd)
    return pid


def move_to(group: str, pid: int) -> bool:
    """Move a process (0: this one) into a group; False where that is refused, or it is gone."""
    return write(f"{group}/cgroup.procs", str(pid))


def members(group: str) -> "list[int]":
    """Return the pids in a group and all groups below it; a process that cannot be seen from here is left out."""
    return [pid for directory in tree(group) for pid in leaders(directory)]


def leaders(group: str) -> "list[int]":
    """Return the pids in a group itself: of a call's that is its launcher."""
    return [int(pid) for pid in kernel.read_small(f"{group}/cgroup.procs").split() if pid != b"0"]


def signal_all(group: str, *signals: int) -> None:
    """Signal whoever is in the group, each looked at once more through its pidfd."""
    for pid in members(group):
        kernel.signal_if(pid, lambda pid=pid: pid in members(group), *signals)  # type: ignore[misc]


def kill(group: str) -> None:
    """Kill everything in the group and below, at once and without a fork; one by one before Linux 5.14."""
    if write(f"{group}/cgroup.kill", "1"):
        return
    for _ in range(ROUNDS):  # what forks meanwhile is met in the next round
        if not members(group):
            return
        signal_all(group, int(_signal.SIGKILL))


def remove(group: str) -> bool:
    """Remove the group and the groups below it, as far as they are empty; says whether it is gone."""
    for directory in reversed(tree(group)):
        try:  # noqa: SIM105  (contextlib costs an import)
            os.rmdir(directory)
        except OSError:
            pass  # somebody is still there, or it is gone
    return not os.path.isdir(group)


def tree(group: str) -> "list[str]":
    """Return the group and all groups below it, each before those below it."""
    found = [group]
    for directory in found:  # grows while it is walked
        try:
            with os.scandir(directory) as entries:
                found += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError:
            continue
    return found if os.path.isdir(group) else []


def write(path: str, text: str) -> bool:
    """Write to a file of the kernel; False where that is refused."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        os.write(fd, text.encode())
    except OSError:
        return False
    finally:
        os.close(fd)
    return True
