"""The directories in `calls/` of a run, in which launchers keep the evidence of their calls. All of it blocks.

What a launcher writes into one of them, and what it proves, is known to `processes`.
"""

import contextlib
import os
import secrets

from onward.core.ids import is_call_id
from onward.errors import NotFound
from onward.store import disk, rundir


def names_of(runs_fd: int, run_id: str) -> list[str]:
    """Return what is called anything in there."""
    with disk.opened_dir(run_id, dir_fd=runs_fd) as dir_fd:
        return list(rundir.call_names(dir_fd))


def make(runs_fd: int, run_id: str, call_id: str) -> None:
    """Make a call's directory, durably."""
    with disk.opened_dir(run_id, dir_fd=runs_fd) as dir_fd:
        with contextlib.suppress(FileExistsError):
            disk.make_dir(rundir.CALLS, "calls.make", dir_fd=dir_fd)
        with disk.opened_dir(rundir.CALLS, dir_fd=dir_fd) as calls_fd:
            disk.make_dir(call_id, "call.make", dir_fd=calls_fd)


def remove(runs_fd: int, run_id: str, call_id: str) -> None:
    """Remove a call's directory; one that is missing is no error."""
    with contextlib.suppress(NotFound), disk.opened_dir(run_id, rundir.CALLS, dir_fd=runs_fd) as calls_fd:
        disk.remove_tree(call_id, dir_fd=calls_fd)


def set_aside(runs_fd: int, run_id: str) -> None:
    """Rename the directories of all calls, durably, so that they are evidence of nothing any more."""
    with contextlib.suppress(NotFound), disk.opened_dir(run_id, rundir.CALLS, dir_fd=runs_fd) as calls_fd:
        for name in filter(is_call_id, os.listdir(calls_fd)):
            disk.rename(name, f"{name}.aside-{secrets.token_hex(4)}", "call.aside", dir_fd=calls_fd)
