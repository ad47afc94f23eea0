"""The keeper of the daemon, as the command line shows and ends it."""

import os
import select
import signal
from pathlib import Path
from typing import Any

from onward.cli.client import TimedOut
from onward.cli.keeping import Kept, read_kept
from onward.cli.terminal import line, out, paint, say

STOP_S = 90.0
KEEPER_S = 5.0


def show(kept: Kept | None) -> None:
    """Show the keeper of a daemon that answers, in `onward status`."""
    if kept is not None and kept.alive():
        last = f", the last time because {line(kept.last_end)}" if kept.last_end else ""
        out(f"keeper     pid {kept.pid}, has started the daemon again {kept.restarts} times{last}")
    elif kept is not None and kept.given_up is None:
        gone = "none: the one that started this daemon is gone, so nobody starts it again when it dies"
        out(f"keeper     {paint(gone, 'warn')}\n           -> onward down --leave-running, then onward up")


def why(kept: Kept | None) -> str:
    """Say what the keeper of the daemon that is missed knows."""
    if kept is not None and kept.given_up is not None:
        return f"; it was given up: {line(kept.given_up)}. Its log says more; `onward up` tries again"
    if kept is not None and kept.alive() and kept.last_end is None:
        return f"; its keeper (pid {kept.pid}) lives, so it is being started, or serves there again in a moment"
    if kept is not None and kept.alive():
        return f"; its keeper (pid {kept.pid}) is about to start it again: {line(kept.last_end)}"
    return ""


def to_json(kept: Kept | None) -> dict[str, Any] | None:
    """Return what `onward status --json` says of a keeper."""
    if kept is None:
        return None
    alive = kept.alive()
    return {
        "pid": kept.pid if alive else None,
        "restarts": kept.restarts,
        "last_end": kept.last_end,
        "given_up": kept.given_up,
    }


def end(socket: Path) -> int:
    """End a keeper that is about to start its daemon again."""
    kept, process = opened(socket)
    if kept is None or process is None:
        say("no daemon runs")
        return 0
    try:
        signal.pidfd_send_signal(process, signal.SIGTERM)
        if not select.select([process], [], [], STOP_S)[0]:
            raise TimedOut(f"the keeper of the daemon (pid {kept.pid}) does not end")
    finally:
        os.close(process)
    say(f"no daemon ran; its keeper (pid {kept.pid}) has ended")
    return 0


def opened(socket: Path) -> tuple[Kept, int] | tuple[None, None]:
    """Return the keeper that is at work for a daemon, and a descriptor of its process."""
    kept = read_kept(socket)
    process = None if kept is None else open_process(kept.pid)
    if kept is None or process is None:
        return None, None
    if kept.alive():  # asked after the open: this descriptor is that of the keeper, or the number was used again
        return kept, process
    os.close(process)
    return None, None


def wait_for(process: int | None) -> None:
    """Return when the keeper of a daemon that has ended is gone too; it takes what it tells away before it is."""
    if process is not None:
        select.select([process], [], [], KEEPER_S)
        os.close(process)


def open_process(pid: int) -> int | None:
    """A descriptor stands for this very process, whoever gets its number afterwards."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None
