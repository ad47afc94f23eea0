"""Time, injected."""

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """Wall time for people and deadlines that cross restarts, monotonic time for durations, and waiting."""

    def now(self) -> datetime:
        """Return aware UTC time."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go back; their origin means nothing."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait; a time of zero or less only lets others run. Safe to cancel."""
        ...
