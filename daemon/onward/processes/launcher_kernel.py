"""What the launcher asks of the kernel. Standard library only, cheap to import: each call pays for each import."""

import _ctypes
import fcntl
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Callable
else:
    import _signal  # the module `signal` costs 4 ms more: it builds enums

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36

# `struct flock` on Linux: type, whence (SEEK_SET), padding, start, length (0: all), pid (must be 0 for OFD locks).
_EXCLUSIVE = fcntl.F_WRLCK.to_bytes(2, sys.byteorder) + bytes(30)

_PRCTL = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")  # type: ignore[arg-type]  # typeshed: None is allowed


def prctl(option: int, value: int) -> None:
    """Set a process attribute.

    Raises:
        OSError: The kernel refused.
    """
    if _ctypes.call_function(_PRCTL, (option, value, 0, 0, 0)) != 0:
        raise OSError(f"prctl({option}, {value}) failed")


def take_lock(fd: int) -> None:
    """Take the exclusive open-file-description lock on a new file; it lasts until the last copy of `fd` is closed."""
    fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _EXCLUSIVE)


def lock_is_held(fd: int) -> bool:
    """Say whether some other open file description holds a lock on this file, without ever taking it."""
    answer = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, _EXCLUSIVE)
    return int.from_bytes(answer[:2], sys.byteorder) != fcntl.F_UNLCK


def daemon_is_there(runs_lock: bytes | str) -> bool:
    """Say whether a daemon holds the runs directory. The path is opened anew each time: the file may be another one.

    Only the absence of the file counts as the absence of a daemon; what else may be wrong is no reason to end anything.
    """
    try:
        fd = os.open(runs_lock, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    try:
        return lock_is_held(fd)
    except OSError:
        return True
    finally:
        os.close(fd)


def read_small(path: str, limit: int = 1 << 21) -> bytes:
    """Return a file of /proc, or nothing where the process is gone or not ours."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        parts = []
        while limit > 0 and (part := os.read(fd, min(limit, 1 << 16))):
            parts.append(part)
            limit -= len(part)
        return b"".join(parts)
    except OSError:
        return b""
    finally:
        os.close(fd)


def parse_stat(stat: bytes) -> "tuple[int, int] | None":
    """Return parent pid and raw start ticks (fields 4 and 22) of a /proc/<pid>/stat; None where it is not one.

    The command's name (field 2) may hold spaces and brackets, so fields count from the last bracket.
    """
    fields = stat[stat.rfind(b")") + 2 :].split()
    return (int(fields[1]), int(fields[19])) if len(fields) > 19 else None


def process_table() -> "dict[int, tuple[int, int]]":
    """Return parent pid and start ticks of every process."""
    table = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (parsed := parse_stat(read_small(f"/proc/{name}/stat"))):
            table[int(name)] = parsed
    return table


def identified(pids: "list[int]") -> "dict[int, int]":
    """Return the start ticks of those that live, by pid."""
    stats = ((pid, parse_stat(read_small(f"/proc/{pid}/stat"))) for pid in pids)
    return {pid: parsed[1] for pid, parsed in stats if parsed}


def carries(pid: int, markers: "frozenset[bytes]") -> bool:
    """Say whether the environment that the process was started with holds all these `NAME=value` pairs."""
    environ = read_small(f"/proc/{pid}/environ")
    return bool(environ) and markers.issubset(environ.split(b"\0"))


def process_tree(root: int, markers: "frozenset[bytes]") -> "dict[int, int]":
    """Return pid and start ticks of all that descends from `root`, and of all others that carry `markers`.

    `root` is a subreaper, so a double fork or `setsid` does not lead out of its tree.
    """
    table = process_table()
    found: dict[int, int] = {}
    parents = {root}
    while parents:
        parents = {pid for pid, (parent, _) in table.items() if parent in parents and pid not in found}
        found.update((pid, table[pid][1]) for pid in parents)
    if markers:
        rest = (pid for pid in table if pid not in found and pid != root)
        found.update((pid, table[pid][1]) for pid in rest if carries(pid, markers))
    return found


def signal_process(pid: int, ticks: int, *signals: int) -> None:
    """Send signals to this very process; nothing happens where it is gone, however often its pid was used again."""

    def is_it() -> bool:
        parsed = parse_stat(read_small(f"/proc/{pid}/stat"))
        return parsed is not None and parsed[1] == ticks

    signal_if(pid, is_it, *signals)


def signal_if(pid: int, is_it: "Callable[[], bool]", *signals: int) -> None:
    """Send signals to whoever has this pid, if it is who is meant.

    Asked after the open: what is signalled through the descriptor is what was looked at, or nobody.
    """
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if is_it():
            for number in signals:
                _signal.pidfd_send_signal(fd, number)
    except OSError:
        pass  # it ended meanwhile: there is nobody to be signalled
    finally:
        os.close(fd)


_faults = dict(item.split("=", 1) for item in os.environ.get("ONWARD_FAULT", "").split(",") if "=" in item)


def fault(point: str) -> None:
    """Do what `ONWARD_FAULT` says for this point: `kill`, `stop`, `enospc` (once) or `enospc*` (always)."""
    action = _faults.get(point, "")
    if not action.endswith("*"):
        _faults.pop(point, None)
    if action == "kill":
        os.kill(os.getpid(), _signal.SIGKILL)
    elif action == "stop":
        os.kill(os.getpid(), _signal.SIGSTOP)
    elif action.startswith("enospc"):
        raise OSError(28, f"No space left on device (fault point {point})")
