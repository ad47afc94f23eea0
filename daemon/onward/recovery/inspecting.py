"""What recovery would do, asked from outside: reads only, needs no daemon, never raises."""

import os
import stat
from dataclasses import dataclass, replace
from pathlib import Path

from onward.core.daemon_facts import fold_facts
from onward.core.fold import NewerRecord
from onward.core.ids import is_run_id
from onward.core.inspection import Inspection, judge, unusable
from onward.core.plan import lost_records, plan
from onward.core.replay import NotAJournal, Replay
from onward.core.state import RunState
from onward.core.status import Status
from onward.errors import OnwardError
from onward.ports.process import ProcessSpawner
from onward.processes import LauncherSpawner
from onward.processes.identity import boot_id
from onward.recovery.evidence import look_at_all
from onward.recovery.recover import policy_for
from onward.store import disk, lock, rundir
from onward.store.facts import read_facts
from onward.store.filestore import LOCK

Target = str | os.PathLike[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """A run as it was read: what its journal says, what the rest of its directory shows is lost, who works on it."""

    replay: Replay
    loss: str | None
    live: bool


def inspect(path: Target, max_revivals: int | None = None, spawner: ProcessSpawner | None = None) -> Inspection:
    """Say what recovery would do with the run in one directory. Blocks; writes nothing and never raises.

    Args:
        path: The directory of a run. Whatever it is, it gives an answer: what is no directory is `unreadable`.
        max_revivals: How many charged revivals to allow; None takes the run's own limit. With 0 or less, none.
        spawner: How to look at the processes of calls; by default, as the daemon does.
    """
    try:
        return _inspect(run_path(path), max_revivals, spawner or LauncherSpawner())
    except NotAJournal as error:
        return unusable(_name(path), "damaged", str(error))
    except NewerRecord as error:
        return unusable(_name(path), "newer", str(error))
    except (OnwardError, OSError, ValueError) as error:
        return unusable(_name(path), "unreadable", str(error))
    except Exception as error:  # noqa: BLE001  # a file of which we did not think is still only a file to report
        return unusable(_name(path), "unreadable", f"it cannot be made sense of: {error!r}")


def inspect_all(path: Target, max_revivals: int | None = None) -> list[Inspection]:
    """Inspect every run of a directory of runs, by name; anything else is inspected as one run.

    Args and guarantees as for `inspect`.
    """
    try:
        if _is_run(path):
            return [inspect(path, max_revivals)]
        return [inspect(os.path.join(path, name), max_revivals) for name in _runs_in(path)]
    except (OSError, ValueError):
        return [inspect(path, max_revivals)]


def run_path(path: Target) -> Path:
    """Return the whole path of a run's directory; links may lead to the runs, but none may stand in a run's place."""
    whole = os.path.abspath(path)
    return Path(os.path.realpath(os.path.dirname(whole)), os.path.basename(whole))


def look(path: Path) -> Looked:
    """Read a run without changing anything. Blocks.

    Raises:
        NotFound, Unreadable, NotAJournal, NewerRecord: As they say.
    """
    runs_fd = disk.open_dir(str(path.parent))
    try:
        if not is_run_id(path.name):
            raise NotAJournal(f"{path.name[:80]!r} is not the name of a run's directory")
        replay = rundir.read(runs_fd, path.name)
        index = rundir.read_index(runs_fd, path.name)
    finally:
        os.close(runs_fd)
    loss = lost_records(replay.state, _names(path / rundir.CALLS), index["journal"]["seq"] if index else None)
    return Looked(replay=replay, loss=loss, live=_is_live(replay.state, path.parent / LOCK))


def _inspect(path: Path, max_revivals: int | None, spawner: ProcessSpawner) -> Inspection:
    if not _is_dir(path):
        return unusable(path.name, "unreadable", _why_not(path))
    looked = look(path)
    state = looked.replay.state
    evidence = look_at_all(state, path / rundir.CALLS, spawner, fence=False)
    policy = policy_for(state, boot_id())
    if max_revivals is not None:
        policy = replace(policy, max_revivals=None)  # the asker's cap stands in its place
    decided = plan(state, evidence, policy, loss=looked.loss)
    judged = judge(
        path.name,
        state,
        decided,
        loss=looked.loss,
        live=looked.live,
        cap=max_revivals,
        torn=looked.replay.torn,
    )
    if judged.revivable and (why := suspended(path)) is not None:
        return replace(judged, revivable=False, reason="quarantined", detail=why)
    return judged


def suspended(path: Path) -> str | None:
    """Return why daemons leave the run in this directory alone, as their own facts say; None: they do not. Blocks."""
    try:
        runs_fd = disk.open_dir(str(path.parent))
    except OnwardError:
        return None
    try:
        return fold_facts(read_facts(runs_fd)).suspended.get(path.name)
    except (OnwardError, OSError):
        return None
    finally:
        os.close(runs_fd)


def _is_live(state: RunState, lock_path: Path) -> bool:
    """Whether the process that claimed the run last holds the runs directory, and the run is active."""
    holder, claim = lock.holder_of(str(lock_path)), state.claim
    if holder is None or claim is None or state.status is not Status.ACTIVE:
        return False
    claimed = (claim["pid"], claim["start_ticks"], claim["boot_id"])
    return claimed == (holder.pid, holder.start_ticks, holder.boot_id)


def _names(directory: Path) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except FileNotFoundError:
        return []


def _is_dir(path: Target) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except (OSError, ValueError):
        return False


def _is_run(path: Target) -> bool:
    """Whether this is a run's own directory, rather than one that holds runs."""
    if os.path.lexists(os.path.join(path, rundir.JOURNAL)):
        return True
    return is_run_id(os.path.basename(os.path.abspath(path))) and not _runs_in(path)


def _runs_in(path: Target) -> list[str]:
    return sorted(name for name in os.listdir(path) if is_run_id(name) and _is_dir(os.path.join(path, name)))


def _name(path: object) -> str:
    return os.path.basename(str(path).rstrip("/"))[:200]


def _why_not(path: Path) -> str:
    try:
        path.lstat()
    except OSError as error:
        return f"{str(path)!r}: {error.strerror}"
    return f"{str(path)!r} is no directory of a run"
