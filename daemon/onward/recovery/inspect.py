"""What recovery would do, asked from outside: reads only, needs no daemon, never raises for what it finds."""

import os
import stat
from dataclasses import replace
from pathlib import Path

from onward.core.fold import NewerRecord
from onward.core.ids import is_run_id
from onward.core.inspection import Inspection, judge, unusable
from onward.core.plan import lost_records, plan
from onward.core.replay import NotAJournal
from onward.core.state import RunState
from onward.errors import OnwardError
from onward.ports.process import ProcessSpawner
from onward.processes import LauncherSpawner
from onward.processes.identity import boot_id
from onward.recovery.evidence import look_at_all
from onward.recovery.recover import policy_for
from onward.store import disk, lock, rundir


def inspect_path(path: Path, max_revivals: int | None = None) -> list[Inspection]:
    """Inspect one run directory, or every run in a directory of runs, by name. Blocks; writes nothing.

    Args:
        path: Whatever it is: a path that is no directory gives one answer, `unreadable`.
        max_revivals: The cap to judge by; None takes each run's own. A negative one refuses every run.
    """
    path = Path(os.path.abspath(path))
    if not _is_dir(path):
        return [unusable(path.name, "unreadable", _why_not(path))]
    if (path / rundir.JOURNAL).exists() or not _holds_runs(path):
        return [inspect_run(path, max_revivals)]
    names = sorted(entry.name for entry in os.scandir(path) if is_run_id(entry.name))
    return [inspect_run(path / name, max_revivals) for name in names]


def inspect_run(path: Path, max_revivals: int | None = None, spawner: ProcessSpawner | None = None) -> Inspection:
    """Inspect one run directory. Never raises for what it finds there; see `inspect_path`."""
    run_id = path.name
    try:
        runs_fd = disk.open_dir(str(path.parent))
    except OnwardError as error:
        return unusable(run_id, "unreadable", str(error))
    try:
        return _inspect(runs_fd, path, max_revivals, spawner or LauncherSpawner())
    except NotAJournal as error:
        return unusable(run_id, "damaged", str(error))
    except NewerRecord as error:
        return unusable(run_id, "newer", str(error))
    except (OnwardError, OSError) as error:
        return unusable(run_id, "unreadable", str(error))
    finally:
        os.close(runs_fd)


def _inspect(runs_fd: int, path: Path, max_revivals: int | None, spawner: ProcessSpawner) -> Inspection:
    replay = rundir.read(runs_fd, path.name)
    state = replay.state
    index = rundir.read_index(runs_fd, path.name)
    calls_dir = path / rundir.CALLS
    evidence = look_at_all(state, calls_dir, spawner, fence=False)
    loss = lost_records(state, _names(calls_dir), index["journal"]["seq"] if index else None)
    policy = policy_for(state, boot_id())
    cap = policy.max_revivals if max_revivals is None else max_revivals
    decided = plan(state, evidence, replace(policy, max_revivals=None), loss=loss)
    live = _is_live(state, path.parent / ".lock")
    return judge(path.name, state, decided, live=live, cap=cap, torn=replay.torn)


def _is_live(state: RunState, lock_path: Path) -> bool:
    """Whether the process that claimed the run last holds the runs directory."""
    holder, claim = lock.holder_of(str(lock_path)), state.claim
    if holder is None or claim is None:
        return False
    claimed = (claim["pid"], claim["start_ticks"], claim["boot_id"])
    return claimed == (holder.pid, holder.start_ticks, holder.boot_id)


def _names(directory: Path) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except FileNotFoundError:
        return []


def _is_dir(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False


def _holds_runs(path: Path) -> bool:
    try:
        return not is_run_id(path.name) or any(is_run_id(entry.name) for entry in os.scandir(path) if entry.is_dir())
    except OSError:
        return False


def _why_not(path: Path) -> str:
    try:
        path.lstat()
    except OSError as error:
        return f"{str(path)!r}: {error.strerror}"
    return f"{str(path)!r} is no directory of a run"
