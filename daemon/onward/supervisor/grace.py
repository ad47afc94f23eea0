"""When deadlines may apply: not before people could have met them."""

from onward.ports.clock import Clock

GRACE_S = 60.0
"""Seconds after the daemon began to serve, and after the clock was found moved, in which no deadline applies."""
JUMP_S = 10.0


class Grace:
    """Made when the daemon begins. A machine that slept looks like one whose clock was moved, and is treated so."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until = clock.monotonic() + GRACE_S
        self._offset_s = self._measure()

    def left_s(self) -> float:
        """Return for how many seconds no deadline applies yet."""
        offset_s = self._measure()
        if abs(offset_s - self._offset_s) > JUMP_S:
            self._until = self._clock.monotonic() + GRACE_S
        self._offset_s = offset_s
        return max(0.0, self._until - self._clock.monotonic())

    def _measure(self) -> float:
        return self._clock.now().timestamp() - self._clock.monotonic()
