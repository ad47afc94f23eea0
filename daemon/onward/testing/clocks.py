"""Clocks that tests own."""

from datetime import UTC, datetime, timedelta

import anyio
import anyio.lowlevel


class FakeClock:
    """Time that moves only by `advance`. Implements `onward.ports.clock.Clock`."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._start = start
        self._passed_s = 0.0
        self._waiting: list[tuple[float, anyio.Event]] = []

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._passed_s)

    def monotonic(self) -> float:
        return self._passed_s

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await anyio.lowlevel.checkpoint()
            return
        waiting = (self._passed_s + seconds, anyio.Event())
        self._waiting.append(waiting)
        try:
            await waiting[1].wait()
        finally:
            if waiting in self._waiting:
                self._waiting.remove(waiting)

    @property
    def sleepers(self) -> int:
        """How many wait for time to pass."""
        return len(self._waiting)

    def advance(self, seconds: float) -> None:
        """Let time pass; whoever's time has come goes on."""
        self._passed_s += seconds
        for at, due in self._waiting:
            if at <= self._passed_s:
                due.set()
        self._waiting = [(at, due) for at, due in self._waiting if at > self._passed_s]
