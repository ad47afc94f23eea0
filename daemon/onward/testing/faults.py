"""Named fault points: the places where a test can make a durable step fail, stop or die.

`ONWARD_FAULT` holds one or more `point[#n]=action`, separated by commas; the action happens at the n-th hit (default
the first) of that point in this process:

* `kill`   the process ends by SIGKILL, as in a crash
* `stop`   the process stops by SIGSTOP until somebody continues it
* `eio`, `enospc`  the step fails with that errno, once
* `enospc*`, `eio*`  the step fails with that errno from then on
* `short`  (writes) only half of the bytes are written, once

Points of one run are written `point@RUN`: `run.fold@RUN` (its journal is folded), `run.enter@RUN`. No trace has them.

`ONWARD_FAULT_TRACE=FILE` appends one line per hit, so that a sweep can first learn which points a scenario passes.
"""

import errno
import os
import signal
from dataclasses import dataclass, field

_ERRNO = {"eio": errno.EIO, "enospc": errno.ENOSPC}


@dataclass(slots=True)
class FaultPlan:
    """What is to happen, and how often each point was passed so far."""

    actions: dict[str, dict[int, str]] = field(default_factory=dict)
    sticky: dict[str, str] = field(default_factory=dict)
    hits: dict[str, int] = field(default_factory=dict)
    trace_fd: int | None = None

    @classmethod
    def parse(cls, text: str, trace: str | None = None) -> "FaultPlan":
        plan = cls()
        for item in filter(None, text.split(",")):
            where, _, action = item.partition("=")
            point, _, nth = where.partition("#")
            plan.actions.setdefault(point, {})[int(nth or 1)] = action
        if trace:
            plan.trace_fd = os.open(trace, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        return plan

    def hit(self, point: str) -> str | None:
        count = self.hits[point] = self.hits.get(point, 0) + 1
        if self.trace_fd is not None:
            os.write(self.trace_fd, f"{os.getpid()} {point}#{count}\n".encode())
        action = self.actions.get(point, {}).get(count) or self.sticky.get(point)
        if action and action.endswith("*"):
            self.sticky[point] = action = action[:-1]
        return action


_plan: FaultPlan | None = None


def install(plan: FaultPlan | None) -> None:
    """Use `plan` in this process from now on; None switches every point off."""
    global _plan
    _plan = plan


def install_from_environment() -> None:
    """Use what `ONWARD_FAULT` and `ONWARD_FAULT_TRACE` say; the variables are taken out of the environment."""
    text, trace = os.environ.pop("ONWARD_FAULT", ""), os.environ.pop("ONWARD_FAULT_TRACE", None)
    if text or trace:
        install(FaultPlan.parse(text, trace))


def hit(point: str) -> str | None:
    """Pass the point: returns None (the normal case) or `"short"`, dies, stops or fails.

    Raises:
        OSError: With the errno that the plan asks for here.
    """
    return None if _plan is None else _act(_plan.hit(point), point)


def hit_of(point: str, run_id: str) -> None:
    """Pass a point of one run; as `hit`."""
    if _plan is not None and (point := f"{point}@{run_id}") in _plan.actions:
        _act(_plan.hit(point), point)


def _act(action: str | None, point: str) -> str | None:
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif action in _ERRNO:
        raise OSError(_ERRNO[action], f"{os.strerror(_ERRNO[action])} (fault point {point})")
    return action
