"""How many runs work at once, and how fast interrupted ones come back."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from onward.ports.clock import Clock


class Slots:
    """How many runs work at once, first come, first served. The number may change while they do."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._free = anyio.Semaphore(number)
        self._surplus = 0

    async def acquire(self) -> None:
        await self._free.acquire()

    def release(self) -> None:
        if self._surplus:
            self._surplus -= 1
        else:
            self._free.release()

    def resize(self, number: int) -> None:
        """Change the number; where it shrinks, runs that work already go on until they rest."""
        more, self.number = number - self.number, number
        self._surplus -= more
        while self._surplus < 0:
            self._surplus += 1
            self._free.release()
        while self._surplus and self._free.value:
            self._free.acquire_nowait()
            self._surplus -= 1


class Slot:
    """The right of one run to work. Given up while it waits for a timer."""

    def __init__(self, slots: Slots) -> None:
        """Take over one slot that was acquired."""
        self._slots = slots
        self._held = True

    def release(self) -> None:
        if self._held:
            self._held = False
            self._slots.release()

    @asynccontextmanager
    async def released(self) -> AsyncIterator[None]:
        """Let another run work meanwhile; on the way out wait for a slot again."""
        self.release()
        yield
        await self._slots.acquire()
        self._held = True


class Pacer:
    """Lets at most `per_s` pass in a second, the first at once."""

    def __init__(self, per_s: float, clock: Clock) -> None:
        self._gap_s = 1.0 / per_s
        self._clock = clock
        self._next = clock.monotonic()

    async def wait(self) -> None:
        now = self._clock.monotonic()
        at = max(now, self._next)
        self._next = at + self._gap_s
        if at > now:
            await self._clock.sleep(at - now)
