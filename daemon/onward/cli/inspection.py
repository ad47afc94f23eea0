"""`onward inspect`: what recovery would do, read from the files alone."""

import os
from dataclasses import asdict
from pathlib import Path

from onward.cli.terminal import line, out, out_json, paint, say, table
from onward.core.ids import is_run_id
from onward.core.inspection import Inspection
from onward.errors import BadRequest, NotFound

_HEADER = ("RUN", "GOES ON", "REASON", "STATUS", "TURNS", "REVIVED", "CALLS IN FLIGHT", "DETAIL")
_MEANWHILE = {"waiting": "on answer", "live": "at work"}
_LEGEND = """
GOES ON: yes, when a daemon starts; once released, with `onward release RUN`; by hand, with `onward revive RUN`; on
answer, when a human gives it; no, there is nothing to bring back.
CALLS IN FLIGHT: how each would be settled; none is ever run again."""


def inspect(target: str, *, max_revivals: int | None, as_json: bool) -> int:
    """Inspect a run directory, a directory of runs, or a run of this instance by its id or the beginning of it."""
    from onward.recovery import inspect_all

    path = find(target)
    found = inspect_all(path, max_revivals)
    if as_json:
        for each in found:
            out_json(asdict(each))
    elif len(found) == 1 and found[0].run_id == path.name:
        _show(found[0])
    elif found:
        rows = [_row(each) for each in found]
        table(_HEADER, rows, [["", _tone(each), *[""] * 6] for each in found])
        say(_LEGEND)
    else:
        say(f"there are no runs in {target}")
    return 0


def find(target: str) -> Path:
    """Return the path that is meant: one that is there, or that of a run of this instance.

    Raises:
        NotFound, BadRequest: There is none, or there are several.
    """
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


def run_named(target: str) -> str | None:
    """Return the run of this instance that is named, by its id or its path; None for a path of other runs."""
    if not os.path.lexists(target):
        return target
    path = os.path.abspath(target)
    return os.path.basename(path) if os.path.dirname(path) == str(_runs_dir()) else None


def _runs_dir() -> Path:
    from onward.config.places import find_client_places
    from onward.config.settings import load_settings

    places = find_client_places()
    return load_settings(places).apply(places).runs_dir


def _row(found: Inspection) -> list[str]:
    folded = bool(found.status)
    return [
        line(found.run_id, 64),
        _goes_on(found),
        line(found.reason, 24),
        line(found.status or "-", 16),
        str(found.turns) if folded else "-",
        str(found.revivals) if folded else "-",
        line(_calls(found), 60),
        line(_detail(found)),
    ]


def _goes_on(found: Inspection) -> str:
    if found.revivable:
        return "yes" if found.held is None else "once released"
    return "by hand" if found.by_hand else _MEANWHILE.get(found.reason, "no")


def _detail(found: Inspection) -> str:
    healed = [f"damaged at byte {place.offset}, healed" for place in found.damage[:1] if found.reason != "damaged"]
    torn = ["its torn end would be set aside"] if found.torn else []
    held = [f"held: {found.held}"] if found.held else []
    return "; ".join(filter(None, [found.detail, *held, *healed, *torn])) or "-"


def _tone(found: Inspection) -> str:
    return "good" if found.revivable and found.held is None else "warn" if found.by_hand else "dim"


def _calls(found: Inspection) -> str:
    return ", ".join(f"{call_id} {outcome}" for call_id, outcome in found.calls.items()) or "-"


def _show(found: Inspection) -> None:
    """Show one run in full: what would become of it, and where its journal is bad."""
    revive = f" (onward revive {line(found.run_id)})" if found.by_hand and not found.revivable else ""
    facts = {
        "run": line(found.run_id, 64),
        "goes on": paint(_goes_on(found), _tone(found)) + revive,
        "reason": line(found.reason),
        "detail": line(found.detail, 400),
        "held": line(f"{found.held} (onward release {found.run_id})", 400) if found.held else "",
        "status": line(found.status),
        "turns": str(found.turns) if found.status else "",
        "revived": f"{found.revivals} times since a human last did" if found.revivals else "",
        "torn": line(f"the journal's end is torn, and would be set aside: {found.torn}") if found.torn else "",
    }
    for name, value in facts.items():
        if value:
            out(f"{name:<10} {value}")
    for call_id, outcome in found.calls.items():
        out(f"{'call':<10} {line(call_id, 20)} would be {line(outcome)}")
    for place in found.damage:
        out(f"{'damage':<10} {paint(line(f'at byte {place.offset}: {place.what}'), 'bad')}")
