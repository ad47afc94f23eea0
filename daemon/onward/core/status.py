"""The states of a run and the one table of what may follow what. Pure."""

from enum import StrEnum

from onward.errors import InternalError


class Status(StrEnum):
    """What a run is, as `ps` shows it."""

    ACTIVE = "active"
    WAITING = "waiting"
    PAUSED = "paused"
    PARKED = "parked"
    QUARANTINED = "quarantined"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    DAMAGED = "damaged"
    """Only listed, never journaled: the run cannot be folded at all."""


class Phase(StrEnum):
    """What an active run is doing."""

    READY_TO_INFER = "ready_to_infer"
    INFERRING = "inferring"
    RUNNING_TOOLS = "running_tools"


TERMINAL = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELLED})

_LIVE = frozenset({Status.ACTIVE, Status.PAUSED, Status.PARKED, Status.QUARANTINED})

TRANSITIONS: dict[str, tuple[frozenset[Status], Status]] = {
    "RunPaused": (_LIVE, Status.PAUSED),
    "RunResumed": (_LIVE, Status.ACTIVE),
    "RunParked": (_LIVE, Status.PARKED),
    "RunQuarantined": (_LIVE, Status.QUARANTINED),
    "RunRevived": (frozenset({Status.ACTIVE}), Status.ACTIVE),
    "RunRevived(manual)": (_LIVE | {Status.FAILED}, Status.ACTIVE),
}
"""Record type -> (statuses it may follow, status after it). RunEnded is `_LIVE` -> the status that it names.

`waiting` is not in it: it is what an active run shows while it waits for a human, a child, a timer or a slot.
"""


def after(record_type: str, status: Status, ended_as: str | None = None) -> Status:
    """Return the status that follows.

    Raises:
        InternalError: The record may not follow this status.
    """
    if record_type == "RunEnded":
        allowed, target = _LIVE, Status(ended_as or "")
        if target not in TERMINAL:
            raise InternalError(f"a run cannot end as {ended_as!r}")
    else:
        allowed, target = TRANSITIONS[record_type]
    if status not in allowed:
        raise InternalError(f"{record_type} may not follow {status}")
    return target
