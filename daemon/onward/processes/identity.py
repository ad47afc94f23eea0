"""Which process a recorded one is: pid, raw start ticks, boot id and pid namespace, never a pid alone.

`psutil`'s `create_time()` moves when the clock is set, so it identifies nothing; raw ticks do.
"""

import json
import os
from dataclasses import dataclass
from typing import Any

from onward.processes.launcher_cgroup import members
from onward.processes.launcher_kernel import carries, parse_stat, read_small

MARKERS = ("ONWARD_INSTANCE", "ONWARD_RUN_ID", "ONWARD_CALL_ID")


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What `calls/<call_id>/identity` says: a launcher, or (`fence`) a recovery that made sure there never is one.

    `call` holds the markers (`ONWARD_INSTANCE`, ...) that the command was started with.
    """

    pid: int
    boot_id: str
    start_ticks: int = 0
    pid_ns: int = 0
    fence: bool = False
    call: dict[str, str]

    @property
    def markers(self) -> frozenset[bytes]:
        """All three markers as they stand in an environment; empty when one is missing (fewer match other calls)."""
        return marker_set(self.call)


def marker_set(env: dict[str, str]) -> frozenset[bytes]:
    """Return the three markers in `env` as `NAME=value` bytes, or nothing unless all are there."""
    if not all(env.get(name) for name in MARKERS):
        return frozenset()
    return frozenset(os.fsencode(f"{name}={env[name]}") for name in MARKERS)


def split_markers(markers: frozenset[bytes]) -> dict[str, str]:
    """Return what `marker_set` was made of."""
    pairs = (os.fsdecode(marker).partition("=") for marker in markers)
    return {name: value for name, _, value in pairs}


def parse_identity(data: bytes) -> Identity | None:
    """Read an identity file; None where it is not whole or not of this protocol."""
    found = parse_object(data)
    try:
        call = found.get("call") or {}
        return Identity(
            pid=int(found["pid"]),
            boot_id=str(found["boot_id"]),
            start_ticks=int(found.get("start_ticks", 0)),
            pid_ns=int(found.get("pid_ns", 0)),
            fence=found.get("fence") is True,
            call={str(name): str(value) for name, value in call.items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def parse_object(data: bytes) -> dict[str, Any]:
    """Return a JSON object of protocol 1, or an empty one."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) and found.get("protocol") == 1 else {}


def start_ticks(pid: int) -> int | None:
    """Return the raw start ticks of a process, None where there is none."""
    parsed = parse_stat(read_small(f"/proc/{pid}/stat"))
    return None if parsed is None else parsed[1]


def boot_id() -> str:
    """Return the id of this boot."""
    return read_small("/proc/sys/kernel/random/boot_id").strip().decode()


def pid_namespace() -> int:
    """Return the inode that names our pid namespace."""
    return os.stat("/proc/self/ns/pid").st_ino


def same_process(identity: Identity, group: str | None = None) -> bool:
    """Say whether the recorded process lives, seen from here.

    Where its call has markers it must carry them, or be in the cgroup of the call: a file can name any process.
    """
    return (
        not identity.fence
        and identity.pid > 1
        and identity.boot_id == boot_id()
        and identity.pid_ns == pid_namespace()
        and start_ticks(identity.pid) == identity.start_ticks
        and (
            not identity.markers
            or carries(identity.pid, identity.markers)
            or (group is not None and identity.pid in members(group))
        )
    )


def open_process(identity: Identity, group: str | None = None) -> int | None:
    """Return a pidfd of the recorded process, None where that is gone or not visible from here.

    Looked at after the open: what is signalled through the descriptor is what was looked at, or nobody.
    """
    if identity.fence or identity.pid <= 1:
        return None
    try:
        fd = os.pidfd_open(identity.pid)
    except OSError:
        return None
    if same_process(identity, group):
        return fd
    os.close(fd)
    return None
