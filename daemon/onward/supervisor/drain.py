"""That the daemon comes to rest: known to all that could begin something."""

from dataclasses import dataclass


@dataclass(slots=True)
class Drain:
    """Set once: no run begins anything new. `leave_running`: commands are left to the next daemon."""

    on: bool = False
    leave_running: bool = True
