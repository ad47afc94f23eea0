"""How far a call came on its way to a server: told by the transport, asked when the call fails."""

from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(slots=True)
class Sending:
    """One call. Only what never left is known to have done nothing.

    Attributes:
        begun: The transport has begun to write it.
        refused: Why it is known not to have been carried out.
        cut: Why its answer will not come, though it may have been carried out.
    """

    begun: bool = False
    refused: str | None = None
    cut: str | None = None


# A context variable, since the SDK lies between the call and the transport; it hands the context on to its tasks.
current: ContextVar[Sending | None] = ContextVar("onward-mcp-sending", default=None)


def begin() -> None:
    """Note that the call of this context is being written."""
    if (sending := current.get()) is not None:
        sending.begun = True
