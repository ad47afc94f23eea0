"""Where this daemon's calls live in the cgroup tree, if its service manager gave it a part of that. Blocking.

A delegated unit has `daemon/` (this process), and for each call `calls/<run_id>.<call_id>/`, where its launcher is, and
in that `cmd/` for its command. Everything here is cgroup v2, in hybrid mode too.
"""

import errno
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from onward.processes import launcher_cgroup as kernel
from onward.processes.identity import MARKERS, split_markers
from onward.processes.launcher_kernel import read_small

DAEMON, CALLS = "daemon", "calls"
CONTROLLERS = ("memory", "pids")

_DELEGATED = ("user.delegate", "trusted.delegate")
_INSTANCE = "user.onward.instance"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a call may use; 0 does not limit."""

    memory_bytes: int = 0
    tasks: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """The cgroup that was delegated to this daemon.

    `has_subgroup`: systemd starts us in `daemon/` below it (`DelegateSubgroup=daemon`), so controllers may be enabled.
    """

    path: Path
    has_subgroup: bool = False


@dataclass(frozen=True, slots=True)
class NoUnit:
    """Why there is no cgroup for calls."""

    reason: str


def find_unit() -> Unit | NoUnit:
    """Look for the cgroup that was delegated to this process; changes nothing."""
    own = locate(read_small("/proc/self/cgroup").decode(), read_small("/proc/self/mountinfo").decode())
    if own is None:
        return NoUnit("cgroup v2 is not mounted here")
    if is_delegated(own):
        return Unit(path=own)
    if own.name == DAEMON and is_delegated(own.parent):
        # Only who was started there by systemd itself knows that the next daemon is, too.
        return Unit(path=own.parent, has_subgroup=os.environ.get("SYSTEMD_EXEC_PID") == str(os.getpid()))
    return NoUnit("no service manager has delegated its cgroup to this daemon (Delegate=yes)")


def locate(cgroup: str, mountinfo: str) -> Path | None:
    """Return the directory of the v2 cgroup of a process; None where it is not to be seen.

    Args:
        cgroup: `/proc/<pid>/cgroup`.
        mountinfo: `/proc/self/mountinfo`.
    """
    path = cgroup_path(cgroup)
    if path is None:
        return None
    for line in mountinfo.splitlines():
        fields, _, source = line.partition(" - ")
        if not source.startswith("cgroup2 "):
            continue
        root, mount = (_unescaped(part) for part in fields.split(" ")[3:5])
        if path == root or path.startswith(root.rstrip("/") + "/"):
            return Path(mount, path[len(root.rstrip("/")) :].lstrip("/"))
    return None


def cgroup_path(cgroup: str) -> str | None:
    """Return the v2 path in a `/proc/<pid>/cgroup`."""
    return next((line[3:] for line in cgroup.splitlines() if line.startswith("0::")), None)


def is_delegated(group: Path) -> bool:
    """Say whether a service manager gave this cgroup away, to us.

    systemd marks it since version 251. Before that the system's own manager makes the user of the service the owner of
    that cgroup alone; under a user's manager everything is the user's, and proves nothing.
    """
    for name in _DELEGATED:
        try:
            return os.getxattr(group, name) == b"1"
        except OSError:
            continue
    try:
        return os.geteuid() != 0 and group.stat().st_uid == os.geteuid() != group.parent.stat().st_uid
    except OSError:
        return False


def enter(unit: Unit) -> NoUnit | None:
    """Move this process to `daemon/` and make `calls/`; says why that is not possible.

    It must not stay in the unit's own cgroup: with a controller enabled there no process may be beside a group.
    """
    try:
        for name in (DAEMON, CALLS):
            (unit.path / name).mkdir(exist_ok=True)
    except OSError as error:
        return NoUnit(f"cgroups cannot be made below {unit.path}: {error.strerror}")
    if not kernel.move_to(str(unit.path / DAEMON), os.getpid()):
        return NoUnit(f"this process cannot be moved to {unit.path / DAEMON}")
    return None


def enabled_controllers(group: Path) -> list[tuple[Path, str]]:
    """Return each group from here on down that has controllers enabled for its children, the deepest first."""
    found = [(Path(path), read_small(f"{path}/cgroup.subtree_control").decode().strip()) for path in _levels(group)]
    return [(path, controllers) for path, controllers in reversed(found) if controllers]


def _levels(group: Path) -> list[str]:
    """Those above calls and commands; below a group without controllers none can be enabled."""
    return kernel.tree(str(group)) if read_small(f"{group}/cgroup.subtree_control").strip() else []


def trap(group: Path) -> tuple[str, str] | None:
    """Return what is wrong with a unit's cgroup and how to mend it: an enabled controller keeps it from starting.

    systemd puts the next main process into the unit's own cgroup. With a controller enabled there and one command that
    outlived the daemon in a group below, the kernel refuses that, for ever.
    """
    levels = enabled_controllers(group)
    if not levels:
        return None
    commands = "; ".join(
        f"echo '{' '.join('-' + name for name in controllers.split())}' > {path}/cgroup.subtree_control"
        for path, controllers in levels
    )
    text = (
        f"{levels[-1][1]} is enabled in {group}/cgroup.subtree_control: once the daemon has ended while a command "
        "still runs, systemd cannot start it again (219/CGROUP)"
    )
    return text, f"as root: {commands}. Or give the unit DelegateSubgroup=daemon (systemd 254 or newer)"


class CallGroups:
    """The groups of calls in a unit that `enter` was done for."""

    def __init__(self, unit: Unit, limits: Limits | None = None) -> None:
        self.unit = unit
        self._calls = unit.path / CALLS
        self._limits = limits or Limits()
        self._limited = unit.has_subgroup and bool(self._limits.memory_bytes or self._limits.tasks)
        if self._limited:
            wanted = " ".join(f"+{name}" for name in CONTROLLERS)
            self._limited = all(kernel.write(f"{each}/cgroup.subtree_control", wanted) for each in _above(self._calls))

    @property
    def limits_calls(self) -> bool:
        """Whether the kernel holds each call as a whole to the limits; else they are rlimits of single processes."""
        return self._limited

    def path(self, run_id: str, call_id: str) -> Path:
        """Return the group of a call, there or not."""
        return self._calls / f"{run_id}.{call_id}"

    def make(self, env: dict[str, str]) -> Path | None:
        """Make the group of the call that these markers name; None where that is not possible."""
        if not all(env.get(name) for name in MARKERS):
            return None
        group = self.path(env["ONWARD_RUN_ID"], env["ONWARD_CALL_ID"])
        if group.parent != self._calls:
            return None
        try:
            group.mkdir(exist_ok=True)
            (group / kernel.COMMAND).mkdir(exist_ok=True)
        except OSError:
            return None
        self._mark(group, env["ONWARD_INSTANCE"])
        return group

    def _mark(self, group: Path, instance: str) -> None:
        try:
            os.setxattr(group, _INSTANCE, os.fsencode(instance))
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.ENOSPC, errno.EPERM):
                raise
            # Before Linux 5.7: whose it is, is seen by the markers of its processes alone.
        if self._limits.memory_bytes and self._limited:
            kernel.write(f"{group}/memory.max", str(self._limits.memory_bytes))
        if self._limits.tasks and self._limited:
            kernel.write(f"{group}/pids.max", str(self._limits.tasks))

    def of(self, markers: frozenset[bytes]) -> Path | None:
        """Return the group of the call with these markers if it is there, and its instance's."""
        named = split_markers(markers)
        if len(named) < len(MARKERS):
            return None
        group = self.path(named["ONWARD_RUN_ID"], named["ONWARD_CALL_ID"])
        return group if group.parent == self._calls and self._instance(group) == named["ONWARD_INSTANCE"] else None

    def leftovers(self, instance: str, keep: frozenset[tuple[str, str]]) -> list[Path]:
        """Return the groups of this instance's calls that are not in `keep`; those that are empty are removed."""
        found = []
        for group in self._all():
            kernel.remove(str(group))
            run_id, _, call_id = group.name.rpartition(".")
            if (run_id, call_id) not in keep and self._instance(group) == instance:
                found.append(group)
        return found

    def _all(self) -> list[Path]:
        try:
            with os.scandir(self._calls) as entries:
                return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError:
            return []

    def _instance(self, group: Path) -> str | None:
        try:
            return os.fsdecode(os.getxattr(group, _INSTANCE))
        except OSError:
            return None


def _above(calls: Path) -> Iterable[Path]:
    return (calls.parent, calls)


def _unescaped(field: str) -> str:
    """Undo what mountinfo does to blanks and backslashes (proc(5)): an octal number for each."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), field)
