"""A human's revive while no daemon works: one record, under the lock, behind the same look and verdict as `inspect`."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import anyio

from onward.core.daemon_facts import QUARANTINE
from onward.core.fold import NewerRecord
from onward.core.index import index_of, sidecars_of
from onward.core.inspection import Revival, by_hand, out_of_quarantine, revive_refused, revived
from onward.core.plan import damage_of, lost_records
from onward.core.replay import NotAJournal
from onward.errors import BadRequest, NotFound, OnwardError, Refused, StoreError
from onward.processes.identity import boot_id, start_ticks
from onward.processes.users import user_name
from onward.recovery.inspecting import Target, inspect, look_around, run_path
from onward.store.clock import SystemClock
from onward.store.filestore import FileStore, open_for_one_act
from onward.store.lock import Holder, this_process


def revive(
    path: Target | None = None,
    *,
    run: str | None = None,
    runs_dir: Target | None = None,
    max_revivals: int | None = None,
    by: str | None = None,
) -> Revival:
    """Let a run that was put aside, failed or was interrupted go on when a daemon next starts. Blocks.

    A failed, paused, parked or quarantined run passes, and one whose journal is damaged but can be folded; all counts
    of revivals begin anew. Nothing is written where it is refused. Else one record is written durably, RunRevived: what
    the interruption left open is settled when a daemon enters the run. Asked twice, it is written once. While a daemon
    holds the runs it refuses with `live`: ask that daemon (`onward revive RUN`).

    Args:
        path: The directory of the run. Either this or `run`.
        run: The id of the run, in `runs_dir`.
        runs_dir: The directory of the runs, needed with `run`.
        max_revivals: How many charged revivals to allow; 0 refuses every run, None any number.
        by: Who revives it, as the journal will say; None: the user of this process.

    Raises:
        BadRequest: A caller's mistake: both or neither target, no path, a `run` without its `runs_dir`,
            a negative cap.
    """
    target = _target(path, run, runs_dir)
    if max_revivals is not None and max_revivals < 0:
        raise BadRequest(f"max_revivals is {max_revivals}; 0 refuses every revival, None allows any number")
    seen = inspect(target, max_revivals)
    if not seen.by_hand:
        if inspect(target).by_hand:  # then it is the cap alone that stops a human
            return _not(target, "revival-cap", f"at most {max_revivals} revivals are allowed")
        return _not(target, seen.reason, seen.detail)
    try:
        holder = this_process(boot_id(), start_ticks(os.getpid()) or 0)
        whole = run_path(target)
        return anyio.run(
            _revive, holder, whole, look_around(whole.parent).aside, max_revivals, by or user_name(os.getuid())
        )
    except Refused as error:
        return _not(target, "live", str(error))
    except NotAJournal as error:
        return _not(target, "damaged", str(error))
    except NewerRecord as error:
        return _not(target, "newer", str(error))
    except NotFound as error:
        return _not(target, "unreadable", str(error))
    except (OnwardError, OSError) as error:
        return _not(target, "unwritable", str(error))


def _target(path: Target | None, run: str | None, runs_dir: Target | None) -> Target:
    if (path is None) == (run is None):
        raise BadRequest("revive one run: give its path, or its id and the directory of the runs")
    if path is not None:
        try:
            return os.fsdecode(path)
        except TypeError:
            raise BadRequest(f"{path!r} is no path") from None
    if runs_dir is None:
        raise BadRequest(f"the run {run!r} is in some directory of runs: give `runs_dir`, or the path of the run")
    return os.path.join(runs_dir, run or "")


def _not(target: Target, reason: str, detail: str) -> Revival:
    return Revival(ok=False, run_id=os.path.basename(os.path.abspath(target)), reason=reason, detail=detail)


async def _revive(holder: Holder, path: Path, aside: Mapping[str, str], cap: int | None, by: str) -> Revival:
    store = await open_for_one_act(path.parent, SystemClock(), holder)
    try:
        told = await _append(store, path.name, cap, by)
        if (why := aside.get(path.name)) is None:
            return told
        told = out_of_quarantine(told, why)
        if told.ok:  # else it stays as it is, unread by the next daemon
            await store.append_fact(type="Released", what=QUARANTINE, run_id=path.name, by=by)
        return told
    finally:
        await store.close()


async def _append(store: FileStore, run_id: str, cap: int | None, by: str) -> Revival:
    """Look once more, for from here on nobody else writes; then write."""
    run_log = await store.open(run_id)
    try:
        state, beside = run_log.state, run_log.beside
        loss = lost_records(state, beside.call_dirs, beside.index_seq)
        if refused := revive_refused(state, loss=loss, live=False, cap=cap):
            return Revival(ok=False, run_id=run_id, reason=refused.reason, detail=refused.detail)
        told = revived(state, loss=loss)
        if damage_of(state, loss):
            await store.set_call_dirs_aside(run_id)
        await run_log.append(*by_hand(state, by))
        await run_log.flush()
        with suppress(StoreError):  # a cache: the run is folded the next time
            await run_log.write_index(index_of(state), sidecars_of(state))
        return told
    finally:
        await run_log.close()
