"""What calls leave behind: evidence that is not needed any more, and processes that belong to no call that goes on."""

from collections.abc import Mapping
from dataclasses import dataclass

import anyio.to_thread
import structlog

from onward.core.ids import is_call_id
from onward.core.state import RunState
from onward.core.status import TERMINAL
from onward.errors import StoreError
from onward.ports.process import EndedBy, ProcessSpawner, Trace
from onward.ports.store import RunStore
from onward.supervisor.entries import Entry
from onward.supervisor.live import LiveRun

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweeping:
    """Removes and ends; it reads what is durable, and writes no record."""

    store: RunStore
    spawner: ProcessSpawner

    async def sweep(self, live: LiveRun) -> None:
        """Remove the evidence of calls whose results are durable; what still runs of them is ended.

        Of a run that is over everything is ended, but what is not settled is kept: somebody may revive it.
        """
        state = live.state
        names = [name for name in await self.store.call_dirs(state.run_id) if is_call_id(name)]
        settled = _settled(state, names)
        running = names if state.status in TERMINAL else settled
        if running:
            await live.flush()
        for name in running:
            call_dir = self.store.call_dir(state.run_id, name)
            if (await anyio.to_thread.run_sync(self.spawner.probe, call_dir)).trace is Trace.ALIVE:
                await self.spawner.end(call_dir, by=EndedBy.STOP)
        for name in settled:
            await self.store.remove_call_dir(state.run_id, name)

    async def end_leftovers(self, entries: Mapping[str, Entry]) -> int:
        """End every process of this instance that belongs to no call of a run that goes on; returns how many."""
        keep = [
            (run_id, call_id)
            for run_id, entry in list(entries.items())
            if entry.index.get("status") not in TERMINAL or entry.queued
            for call_id in await self._calls_of(run_id)
        ]
        return await self.spawner.end_leftovers(self.store.instance, frozenset(keep))

    async def _calls_of(self, run_id: str) -> list[str]:
        try:
            return await self.store.call_dirs(run_id)
        except StoreError as error:
            log.error("calls cannot be listed", run_id=run_id, error=str(error))
            return []


def _settled(state: RunState, names: list[str]) -> list[str]:
    """Return the calls whose results the journal has; beside damage that is not known of any."""
    if state.gap_since_turn:
        return []
    still_open = {call.call_id for call in state.open_calls}
    return [name for name in names if name not in still_open and int(name[1:].partition("c")[0]) <= state.turns]
