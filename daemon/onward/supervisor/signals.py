"""What signals ask of the daemon, from its first moment on."""

import os
import signal
from collections.abc import AsyncIterator

import anyio
import anyio.to_thread
import structlog
from anyio.abc import TaskStatus

from onward.processes.launcher_kernel import read_small
from onward.supervisor.service_manager import ServiceManager
from onward.supervisor.stopping import Stop, ask_systemd
from onward.supervisor.supervisor import Supervisor

log = structlog.get_logger()

BY_HAND = Stop(leave_running=True, reason="somebody sent the signal")
WITH_THE_CONTAINER = Stop(leave_running=False, reason="the container ends with this daemon, and all that is in it")
OBEYED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
EXIT_AT_ONCE = 1
ONE_STOP_S = 1.0
"""Signals that come so close together are one wish to stop, not impatience."""


class Signals:
    """SIGTERM and SIGINT drain, a later one ends at once; SIGHUP reads the configuration again.

    While the daemon starts there is nothing to drain: a stop cancels `starting`.
    """

    def __init__(self, manager: ServiceManager) -> None:
        self.starting = anyio.CancelScope()
        self._manager = manager
        self._supervisor: Supervisor | None = None

    def lives(self, supervisor: Supervisor) -> None:
        """From now on there is something to drain."""
        self._supervisor = supervisor

    async def obey(self, *, task_status: TaskStatus[None]) -> None:
        """Obey what is received once this has started, until it is cancelled: then nothing is left to be stopped."""
        try:
            with anyio.open_signal_receiver(*OBEYED) as received:
                task_status.started()
                await self._obey(received)
        finally:
            for number in OBEYED:  # else one that comes late would make a death of a clean end
                signal.signal(number, signal.SIG_IGN)

    async def _obey(self, received: AsyncIterator[signal.Signals]) -> None:
        asked_at: float | None = None
        async for number in received:
            if number == signal.SIGHUP:
                await self._reload()
                continue
            if asked_at is not None and anyio.current_time() - asked_at < ONE_STOP_S:
                continue  # the same: a session that ends tells each of its processes, and its keeper tells us too
            if asked_at is not None:
                log.warning("ended at once by a second signal", signal=signal.Signals(number).name)
                os._exit(EXIT_AT_ONCE)
            await self._stop(number)
            asked_at = anyio.current_time()  # only now: what came while systemd was asked came close to the first

    async def _reload(self) -> None:
        if self._supervisor is None:
            return  # what is being started reads its configuration anyway, and again when a file of it changes
        self._manager.reloading()
        await self._supervisor.reload()
        self._manager.ready(self._supervisor.summary)

    async def _stop(self, number: int) -> None:
        stop = await self._why(number)
        log.info("told to stop", signal=signal.Signals(number).name, reason=stop.reason)
        if self._supervisor is None:
            self.starting.cancel()
        else:
            await self._supervisor.stop(leave_running=stop.leave_running)

    async def _why(self, number: int) -> Stop:
        if self._manager.address is not None:
            return await ask_systemd() if number == signal.SIGTERM else BY_HAND
        return WITH_THE_CONTAINER if await anyio.to_thread.run_sync(_is_the_container) else BY_HAND


def _is_the_container() -> bool:
    """Whether this is process 1 of a container, or process 1 keeps this daemon. Not where process 1 is any init."""
    if os.getpid() == 1:
        return True
    return os.getppid() == 1 and b"onward.cli.keeper" in read_small("/proc/1/cmdline").split(b"\0")
