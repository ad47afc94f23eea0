"""Who is ended when no process can be started any more: the limit is shared by the daemon and all calls. Blocking."""

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from onward.processes import launcher_cgroup as cgroup
from onward.processes.cgroups import CallGroups
from onward.processes.identity import MARKERS, split_markers
from onward.processes.launcher_kernel import read_small

CROWD = 32
"""A call with fewer tasks is not to blame: something else on the machine has used them up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """The call that is ended, and why."""

    call_dir: Path
    markers: frozenset[bytes]
    tasks: int

    @property
    def call(self) -> dict[str, str]:
        named = split_markers(self.markers)
        return {"run_id": named["ONWARD_RUN_ID"], "call_id": named["ONWARD_CALL_ID"]}


def greediest(tasks: Mapping[Path, int]) -> Path | None:
    """Return the call with the most tasks, None if none has many; of equals the one whose name comes first."""
    if not tasks:
        return None
    most = min(tasks, key=lambda call_dir: (-tasks[call_dir], call_dir))
    return most if tasks[most] >= CROWD else None


def find_crowd(calls: Mapping[Path, frozenset[bytes]], groups: CallGroups | None) -> Crowd | None:
    """Return the call to be ended so that another can begin.

    Args:
        calls: The markers of the calls that run, by their directories.
        groups: Where their cgroups are.
    """
    known = {call_dir: groups.of(markers) if groups else None for call_dir, markers in calls.items()}
    marked = _marked() if None in known.values() else Counter[frozenset[bytes]]()
    tasks = {
        call_dir: sum(map(_tasks, cgroup.members(str(group)))) if group else marked[calls[call_dir]]
        for call_dir, group in known.items()
    }
    chosen = greediest(tasks)
    return None if chosen is None else Crowd(call_dir=chosen, markers=calls[chosen], tasks=tasks[chosen])


def _marked() -> Counter[frozenset[bytes]]:
    """Count the tasks of every call by what its processes carry."""
    names = tuple(f"{name}=".encode() for name in MARKERS)
    found = Counter[frozenset[bytes]]()
    for name in os.listdir("/proc"):
        if name.isdigit():
            environ = read_small(f"/proc/{name}/environ").split(b"\0")
            markers = frozenset(pair for pair in environ if pair.startswith(names))
            if len(markers) == len(MARKERS):
                found[markers] += _tasks(int(name))
    return found


def _tasks(pid: int) -> int:
    fields = read_small(f"/proc/{pid}/stat").rpartition(b") ")[2].split()
    return int(fields[17]) if len(fields) > 17 else 0  # num_threads, field 20 of proc(5)
