"""`onward inspect`: what recovery would do, read from the files alone."""

import os
from pathlib import Path

from onward.cli.terminal import line, out_json, say, table
from onward.core.ids import is_run_id
from onward.errors import BadRequest, NotFound

_FIELDS = ("run_id", "revivable", "reason", "status", "turns", "detail")


def inspect(target: str, *, max_revivals: int | None, as_json: bool) -> int:
    """Inspect a run directory, a directory of runs, or a run of this instance by its id or the beginning of it."""
    from onward.recovery.inspect import inspect_path

    found = inspect_path(_find(target), max_revivals)
    if as_json:
        for each in found:
            out_json({name: getattr(each, name) for name in _FIELDS})
    elif found:
        header = ("RUN", "REVIVABLE", "REASON", "STATUS", "TURNS", "DETAIL")
        rows = [
            [
                line(each.run_id, 64),
                "yes" if each.revivable else "no",
                line(each.reason, 24),
                line(each.status or "-", 16),
                line("-" if each.turns is None else each.turns, 8),
                line(each.detail or "-"),
            ]
            for each in found
        ]
        table(header, rows, [["", "good" if each.revivable else "warn", *[""] * 4] for each in found])
    else:
        say(f"there are no runs in {target}")
    return 0


def _find(target: str) -> Path:
    if os.path.lexists(target):
        return Path(os.path.abspath(target))
    if "/" in target or not is_run_id(target.ljust(3, "0")):
        raise NotFound(f"there is nothing at {target!r}")
    runs_dir = _runs_dir()
    try:
        names = sorted(name for name in os.listdir(runs_dir) if is_run_id(name) and name.startswith(target))
    except FileNotFoundError:
        names = []
    if target in names or len(names) == 1:
        return runs_dir / (target if target in names else names[0])
    if not names:
        raise NotFound(f"there is no run {target!r} in {runs_dir}, and nothing of that name here")
    raise BadRequest(f"{target!r} is the beginning of {len(names)} runs:\n  " + "\n  ".join(names[:10]))


def _runs_dir() -> Path:
    from onward.config.places import find_places
    from onward.config.settings import load_settings

    places = find_places()
    return load_settings(places).apply(places).runs_dir
