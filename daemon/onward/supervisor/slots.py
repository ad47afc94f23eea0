"""How many runs work at once, and how fast interrupted ones come back."""

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from onward.ports.clock import Clock


class Slots:
    """How many runs work at once, first come, first served. The number may change while they do."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._taken = 0
        self._waiting: deque[anyio.Event] = deque()

    async def acquire(self) -> None:
        if self._taken < self.number and not self._waiting:
            self._taken += 1
            return
        turn = anyio.Event()
        self._waiting.append(turn)
        try:
            await turn.wait()
        except BaseException:
            if turn.is_set():
                self.release()  # it was given to one that had just gone
            else:
                self._waiting.remove(turn)
            raise

    def release(self) -> None:
        self._taken -= 1
        self._give()

    def resize(self, number: int) -> None:
        """Change the number; where it shrinks, runs that work already go on until they rest."""
        self.number = number
        self._give()

    def _give(self) -> None:
        while self._waiting and self._taken < self.number:
            self._taken += 1
            self._waiting.popleft().set()


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
