"""The machine's clock."""

import time
from datetime import UTC, datetime

import anyio


class SystemClock:
    """Implements `onward.ports.clock.Clock`."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(max(seconds, 0.0))
