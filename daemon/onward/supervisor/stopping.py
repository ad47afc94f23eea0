"""Why SIGTERM came: a restart leaves commands running for the next daemon, a stop or a shutdown ends them."""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import anyio

ANSWER_S = 5.0
_SHUTDOWNS = frozenset(f"{name}.target" for name in ("shutdown", "poweroff", "reboot", "halt", "kexec", "soft-reboot"))
_COMES_BACK = frozenset({"restart", "try-restart", "reload-or-start", "start"})
_USER_MANAGER = re.compile(r"/user@\d+\.service/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """What a stop does with commands in flight, and why."""

    leave_running: bool
    reason: str


def judge(unit: str, jobs: str | None) -> Stop:
    """Decide what a SIGTERM to this unit means.

    Args:
        unit: The unit's name.
        jobs: What `systemctl list-jobs` prints; None if there was no answer.
    """
    if jobs is None:
        return Stop(leave_running=False, reason="systemd did not say why; it may be a shutdown")
    queued = [line.split() for line in jobs.splitlines()]
    kinds = {words[1]: words[2] for words in queued if len(words) >= 4 and words[0].isdigit()}
    if going_down := sorted(_SHUTDOWNS & {name for name, kind in kinds.items() if kind == "start"}):
        return Stop(leave_running=False, reason=f"the machine goes down ({going_down[0]})")
    kind = kinds.get(unit)
    if kind is None:
        return Stop(leave_running=True, reason="systemd knows of no stop: somebody else sent the signal")
    if kind in _COMES_BACK:
        return Stop(leave_running=True, reason=f"systemd restarts the unit ({kind})")
    return Stop(leave_running=False, reason=f"systemd stops the unit ({kind})")


def own_unit(cgroups: str) -> tuple[str, bool] | None:
    """Return the service in whose cgroup a process is, and whether a user's manager runs it; None if there is none.

    `cgroups` is the text of its /proc/PID/cgroup.
    """
    for line in cgroups.splitlines():
        _, controllers, path = line.split(":", 2)
        services = [part for part in path.split("/") if part.endswith(".service")]
        if controllers in ("", "name=systemd") and services:
            return services[-1], _USER_MANAGER.search(path + "/") is not None and not services[-1].startswith("user@")
    return None


async def ask_systemd() -> Stop:
    """Ask systemd, once, why this process is to end."""
    return await anyio.to_thread.run_sync(_ask)


def _ask() -> Stop:
    found = own_unit(Path("/proc/self/cgroup").read_text())
    if found is None:
        return judge("", None)
    unit, of_user = found
    command = ["systemctl", *(["--user"] if of_user else []), "list-jobs", "--no-legend", "--plain", "--full"]
    try:
        told = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=ANSWER_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return judge(unit, None)
    return judge(unit, told.stdout.decode(errors="replace"))
