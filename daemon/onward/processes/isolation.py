"""How the calls of this daemon are kept apart: by cgroups where it was given some, else by process groups. Blocking."""

import os
from dataclasses import dataclass
from typing import Any

from onward.processes.cgroups import CALLS, DAEMON, CallGroups, Limits, NoUnit, cgroup_path, enter, find_unit, trap
from onward.processes.launcher_kernel import read_small


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    """What is in force. Without `groups`, process groups, inherited markers and subreapers have to do."""

    groups: CallGroups | None
    reason: str
    problem: str | None = None
    remedy: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return what `GET /v1/daemon` says of it."""
        return {
            "kind": "process-groups" if self.groups is None else "cgroups",
            "reason": self.reason,
            "cgroup": None if self.groups is None else str(self.groups.unit.path),
            "limits_calls": self.groups is not None and self.groups.limits_calls,
            "problem": self.problem,
            "remedy": self.remedy,
        }


PROCESS_GROUPS = Isolation(groups=None, reason="cgroups were not asked for")


def isolate(limits: Limits) -> Isolation:
    """Move this process to its place in the cgroup that was delegated to it, where there is one."""
    unit = find_unit()
    if isinstance(unit, NoUnit):
        return Isolation(groups=None, reason=unit.reason)
    refused = enter(unit)
    if refused is not None:
        return Isolation(groups=None, reason=refused.reason)
    problem, remedy = (None, None) if unit.has_subgroup else trap(unit.path) or (None, None)
    reason = f"the service manager has delegated {unit.path}"
    return Isolation(groups=CallGroups(unit, limits), reason=reason, problem=problem, remedy=remedy)


def is_in_a_call(pid: int) -> bool:
    """Say whether a process is below the cgroups of our calls; False where it is gone or there are none."""
    ours, theirs = (cgroup_path(read_small(f"/proc/{name}/cgroup").decode()) for name in (os.getpid(), pid))
    if ours is None or theirs is None or not ours.endswith(f"/{DAEMON}"):
        return False
    return theirs.startswith(f"{ours.removesuffix(DAEMON)}{CALLS}/")
