"""What recovery would do, asked from outside: reads only, needs no daemon, never raises."""

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from onward.core.daemon_facts import ELSEWHERE, DaemonFacts, Place, decide_start, fold_facts, is_copy
from onward.core.fold import NewerRecord
from onward.core.ids import is_run_id
from onward.core.inspection import Inspection, judge, unread, unusable
from onward.core.plan import lost_records, plan
from onward.core.replay import NotAJournal, Replay
from onward.core.state import RunState
from onward.core.status import Status
from onward.core.step import may_enter
from onward.core.times import stamp
from onward.errors import OnwardError
from onward.ports.process import ProcessSpawner
from onward.processes import LauncherSpawner
from onward.processes.identity import boot_id
from onward.recovery.evidence import look_at_all
from onward.recovery.recover import policy_for
from onward.store import disk, lock, rundir
from onward.store.directory import LOCK, hold_in, machine_id
from onward.store.facts import read_facts

Target = str | os.PathLike[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What a directory of runs says of those in it: `aside` are not even read, and why; `held` holds all others."""

    aside: Mapping[str, str] = field(default_factory=dict)
    held: str | None = None
    here: Place = ("", 0)
    facts: DaemonFacts = field(default_factory=DaemonFacts)

    def holds(self, state: RunState) -> str | None:
        """Return why a run would wait for its release."""
        if self.held is not None and not self.facts.passes_hold(state.run_id, self.here):
            return self.held
        return ELSEWHERE if is_copy(state, self.here, self.facts) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """A run as it was read: what its journal says, what the rest of its directory shows is lost, who works on it."""

    replay: Replay
    loss: str | None
    live: bool


def inspect(path: Target, max_revivals: int | None = None) -> Inspection:
    """Say what recovery would do with the run in one directory. Blocks; writes nothing and never raises.

    Args:
        path: The directory of a run. Whatever it is, it gives an answer: what is no directory is `unreadable`.
        max_revivals: How many charged revivals to allow; None takes the run's own limit. With 0 or less, none.
    """
    return _answer(path, max_revivals, None)


def _answer(path: Target, max_revivals: int | None, known: Around | None) -> Inspection:
    try:
        whole = run_path(path)
        around = look_around(whole.parent) if known is None else known
        if whole.name in around.aside and _is_dir(whole):
            return unread(whole.name, around.aside[whole.name], cap=max_revivals)
        return _inspect(whole, max_revivals, LauncherSpawner(), around)
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
        names = _runs_in(path)
        around = look_around(Path(os.path.realpath(path))) if names else None
        return [_answer(os.path.join(path, name), max_revivals, around) for name in names]
    except (OSError, ValueError, TypeError):
        return [inspect(path, max_revivals)]


def run_path(path: Target) -> Path:
    """Return the whole path of a run's directory; links may lead to the runs, but none may stand in a run's place."""
    whole = os.path.abspath(path)
    return Path(os.path.realpath(os.path.dirname(whole)), os.path.basename(whole))


def look_around(runs_dir: Path) -> Around:
    """Return what a daemon would make of this directory before it reads a run in it. Blocks."""
    try:
        runs_fd = disk.open_dir(str(runs_dir))
    except OnwardError:
        return Around()
    try:
        facts = fold_facts(read_facts(runs_fd))
        asked, here = hold_in(runs_fd), (machine_id(), os.fstat(runs_fd).st_ino)
    except (OnwardError, OSError):
        return Around()
    finally:
        os.close(runs_fd)
    aside, held = facts.suspended, asked
    if lock.holder_of(str(runs_dir / LOCK)) is None:  # else: what its daemon has in hand did not end it
        decided = decide_start(facts, here=here, boot_id=boot_id(), now=stamp(datetime.now(UTC)))
        aside, held = aside | decided.blamed, asked if decided.held is None else decided.reason
    return Around(aside=aside, held=held, here=here, facts=facts)


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


def _inspect(path: Path, max_revivals: int | None, spawner: ProcessSpawner, around: Around) -> Inspection:
    if not _is_dir(path):
        return unusable(path.name, "unreadable", _why_not(path))
    looked = look(path)
    state = looked.replay.state
    evidence = look_at_all(state, path / rundir.CALLS, spawner, fence=False)
    policy = policy_for(state, boot_id())
    if max_revivals is not None:
        policy = replace(policy, max_revivals=None)  # the asker's cap stands in its place
    decided = plan(state, evidence, policy, loss=looked.loss)
    found = judge(
        path.name,
        state,
        decided,
        loss=looked.loss,
        live=looked.live,
        cap=max_revivals,
        torn=looked.replay.torn,
    )
    enters = not looked.live and may_enter(state, stamp(datetime.now(UTC)))
    return replace(found, held=around.holds(state)) if enters else found


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
    if os.path.lexists(os.path.join(path, LOCK)):
        return False  # a daemon has worked here, though no run is left
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
