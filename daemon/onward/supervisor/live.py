"""A loaded run: its open journal, and everybody who waits for what becomes durable in it."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import anyio
import structlog

from onward.core.index import index_of, sidecars_of
from onward.core.records import Json, Record
from onward.core.state import RunState
from onward.core.status import Status
from onward.errors import DiskFull
from onward.ports.clock import Clock
from onward.ports.store import Beside, Decide, RunLog, RunStore
from onward.supervisor.observed import Saw, nobody

FIRST_RETRY_S = 0.5
LONGEST_RETRY_S = 15.0

log = structlog.get_logger()
T = TypeVar("T")


class LiveRun:
    """Implements `onward.native.ports.Recorder`: what a full disk does not take is kept here and written first.

    While it waits, the run takes no step and is shown as parked (`disk`), though no record can say so.
    """

    def __init__(
        self, run_log: RunLog, store: RunStore, clock: Clock, on_change: Callable[[], None], saw: Saw = nobody
    ) -> None:
        self._saw = saw
        self._log = run_log
        self._store = store
        self._clock = clock
        self._on_change = on_change
        self._turn = anyio.Lock()
        self.stalled: str | None = None

    @property
    def state(self) -> RunState:
        return self._log.state

    @property
    def beside(self) -> Beside:
        return self._log.beside

    def index(self) -> Json:
        """Return the index. A run is not over or at rest, and asks nobody, before what says so is durable."""
        index = index_of(self.state, stalled=self.stalled)
        if self.stalled is None and self._is_ahead(index):
            index |= {"status": Status.ACTIVE, "waiting_on": None, "needs": None, "error": None, "result": None}
        return index

    def _is_ahead(self, index: Json) -> bool:
        """Whether an index says what a crash could still take back."""
        state, durable = self.state, self._log.durable_seq
        if durable >= state.seq:
            return False
        asks = index["waiting_on"] == "human" and any(q.opened_seq > durable for q in state.open_questions)
        return asks or state.status is not Status.ACTIVE

    def settled(self) -> bool:
        """Whether all records are durable, or cannot become so at the moment."""
        return self._log.durable_seq >= self.state.seq or self.stalled is not None

    async def append(self, *records: Record) -> None:
        await self.write(lambda: records)

    async def append_durably(self, *records: Record) -> None:
        await self.append(*records)
        await self._log.flush()

    async def act(self, decide: Decide) -> None:
        await self.write(decide)
        await self._log.flush()

    async def write(self, decide: Decide) -> None:
        decided: list[Record] = []

        def deciding() -> list[Record]:
            decided[:] = decide()
            return decided

        async def write() -> None:
            await self._log.write(deciding)
            for record in decided:
                self._saw(self.state, record)

        if self.stalled is None and not self._turn.locked():
            try:
                await write()
            except DiskFull as error:
                self._stall(error)
            else:
                self._on_change()
                return
        await self._when_possible(write)
        self._on_change()

    async def flush(self) -> None:
        await self._log.flush()

    @property
    def durable_seq(self) -> int:
        return self._log.durable_seq

    async def keep(self, data: bytes) -> str:
        return await self._when_possible(lambda: self._store.put_blob(self.state.run_id, data))

    async def make_call_dir(self, call_id: str) -> Path:
        return await self._when_possible(lambda: self._store.make_call_dir(self.state.run_id, call_id))

    async def write_index(self) -> None:
        """Replace meta.json and, where there is something to list, the lists of questions and stage visits."""
        state = self.state
        await self._log.write_index(index_of(state, stalled=self.stalled), sidecars_of(state))

    async def close(self) -> None:
        await self._log.close()

    async def _when_possible(self, act: Callable[[], Awaitable[T]]) -> T:
        """Repeat `act` until the disk takes it; one at a time, in the order in which they came."""
        async with self._turn:
            delay_s = FIRST_RETRY_S
            while True:
                try:
                    result = await act()
                except DiskFull as error:
                    self._stall(error)
                    await self._clock.sleep(delay_s)
                    delay_s = min(delay_s * 2, LONGEST_RETRY_S)
                else:
                    if self.stalled is not None:
                        self.stalled = None
                        log.info("disk has space again", run_id=self.state.run_id)
                        self._on_change()
                    return result

    def _stall(self, error: DiskFull) -> None:
        if self.stalled is None:
            self.stalled = str(error)
            log.error("run parked until the disk has space", run_id=self.state.run_id, error=str(error))
            self._on_change()
