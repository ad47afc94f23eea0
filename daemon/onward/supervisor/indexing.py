"""Keeping meta.json of working runs at most a second behind."""

from collections.abc import Mapping

import structlog

from onward.core.status import TERMINAL
from onward.errors import StoreError
from onward.ports.clock import Clock
from onward.supervisor.entries import Entry
from onward.supervisor.grace import Grace
from onward.supervisor.sweeping import Sweeping
from onward.supervisor.watching import News

log = structlog.get_logger()

INDEX_EVERY_S = 1.0


async def keep_indexes(
    entries: Mapping[str, Entry], *, clock: Clock, grace: Grace, sweeping: Sweeping, news: News
) -> None:
    """Write the index of every run that has changed, and remove the evidence that it needs no more, for ever."""
    while True:
        await clock.sleep(INDEX_EVERY_S)
        grace.left_s()  # a clock that was moved is to be noticed before it matters
        for entry in list(entries.values()):
            loaded = entry.loaded
            # Of one that has ended the index comes after its evidence is removed: nobody looks behind it again.
            if loaded is None or not loaded.index_dirty or loaded.live.state.status in TERMINAL:
                continue
            loaded.index_dirty = False
            try:
                news.tell(entry)
                await loaded.live.write_index()
                await sweeping.sweep(loaded.live)
            except StoreError as error:
                if entry.loaded is loaded:  # else it came to rest meanwhile, and its index is written there
                    log.warning("index not written", run_id=entry.run_id, error=str(error))
