"""The look of `onward doctor` at how commands are kept apart, and at what keeps a unit from starting again."""

import os
from collections.abc import Iterator
from pathlib import Path

from onward.cli.client import Client
from onward.cli.examination import Finding, Installation
from onward.errors import OnwardError
from onward.processes.cgroups import locate, trap

TIMEOUT_S = 5.0
UNIT = "onward.service"


def isolation(installation: Installation) -> Iterator[Finding]:
    """Cgroups, or process groups; as the daemon says, or as its unit left them."""
    try:
        known = Client(installation.client_socket, timeout_s=TIMEOUT_S, kept_s=0.0).get("/v1/daemon").get("isolation")
    except OnwardError:
        yield from left_behind(unit_groups())
        return
    if not known:
        return
    if known.get("problem"):
        yield Finding("fail", str(known["problem"]), str(known.get("remedy") or ""))
    kinds = {"cgroups": "each command has a cgroup", "process-groups": "commands are told apart by process groups"}
    yield Finding("ok", f"{kinds.get(known['kind'], known['kind'])}: {known.get('reason')}")


def left_behind(groups: list[Path]) -> Iterator[Finding]:
    """Say of the cgroups of units that do not run whether they can be started."""
    found = [problem for group in groups if (problem := trap(group)) is not None]
    for text, remedy in found:
        yield Finding("fail", text, remedy)
    if not found:
        yield Finding("ok", "no daemon runs; nothing in the cgroup of its unit is in the way of a start")


def unit_groups() -> list[Path]:
    """Return the cgroups that units of ours would have, the system's and this user's, where they exist."""
    mountinfo = Path("/proc/self/mountinfo").read_text()
    uid = os.getuid()
    places = (
        f"/system.slice/{UNIT}",
        f"/user.slice/user-{uid}.slice/user@{uid}.service/app.slice/{UNIT}",
    )
    found = [locate(f"0::{place}", mountinfo) for place in places]
    return [group for group in found if group is not None and group.is_dir()]
