"""Bringing interrupted runs back: what recovery would do with one, and a human's revive. Both need no daemon.

`inspect` and `inspect_all` read only. `revive` writes one record, under the lock of the runs directory. They read the
same way and ask the same function of the core, so they never disagree.
"""

from onward.core.inspection import Inspection, Revival
from onward.recovery.inspecting import inspect, inspect_all
from onward.recovery.reviving import revive

__all__ = ["Inspection", "Revival", "inspect", "inspect_all", "revive"]
