"""Time, injected."""

from datetime import UTC, datetime
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
        """Wait. Safe to cancel."""
        ...


def stamp(moment: datetime) -> str:
    """Return a UTC time in the journal's form, which sorts as text."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_stamp(text: str) -> datetime:
    """Return the aware UTC time of `stamp`.

    Raises:
        ValueError: It is none.
    """
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
