"""What a launcher is told, and the environment it is started in."""

import json
import marshal
import os
from pathlib import Path

from onward.ports.process import LaunchSpec
from onward.processes.identity import MARKERS


def encode(spec: LaunchSpec, grace_s: float, group: Path | None, data_bytes: int) -> bytes:
    """Return the spec as the launcher reads it: bytes throughout, so its locale does not matter."""
    about = {name: spec.env[name] for name in MARKERS if name in spec.env}
    return marshal.dumps(
        {
            "argv": [os.fsencode(part) for part in spec.argv],
            "cwd": os.fsencode(spec.cwd),
            "env": {os.fsencode(name): os.fsencode(value) for name, value in spec.env.items()},
            "call_dir": os.fsencode(os.path.abspath(spec.call_dir)),
            "runs_lock": os.fsencode(os.path.abspath(spec.runs_lock)),
            "deadline_s": spec.deadline_s,
            "grace_s": grace_s,
            "orphan_grace_s": spec.orphan_grace_s,
            "head_bytes": spec.head_bytes,
            "tail_bytes": spec.tail_bytes,
            "about": json.dumps(about),
            "cgroup": None if group is None else str(group),
            "data_bytes": data_bytes,
        }
    )


def launcher_environment(spec: LaunchSpec) -> dict[str, str]:
    """Return the launcher's own small environment: the markers by which it is found, and its fault points in tests."""
    env = {name: spec.env[name] for name in MARKERS if name in spec.env}
    if "LD_LIBRARY_PATH" in os.environ:  # without it some interpreters do not start
        env["LD_LIBRARY_PATH"] = os.environ["LD_LIBRARY_PATH"]
    if faults := os.environ.get("ONWARD_LAUNCHER_FAULT"):
        env["ONWARD_FAULT"] = faults
    return env
