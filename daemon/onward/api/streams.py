"""The streams of events: one run's records, and the news of all runs."""

from functools import partial
from typing import Annotated, Any

import anyio
from fastapi import APIRouter, Header
from pydantic import StringConstraints
from starlette.responses import Response

from onward.api.events import EventStream, StreamSlots, news, record_or_delta
from onward.api.requests import MOST_SEQ, After, RunIdOf
from onward.ports.operations import Operations

Position = Annotated[str, StringConstraints(max_length=64)]


def streams(operations: Operations, *, shutdown: anyio.Event, heartbeat_s: float) -> APIRouter:
    """Return the routes of event streams; all of them end when `shutdown` is set."""
    router = APIRouter(prefix="/v1", tags=["events"])
    slots = StreamSlots()
    stream = partial(EventStream, shutdown=shutdown, slots=slots, heartbeat_s=heartbeat_s)
    streamed: dict[int | str, dict[str, Any]] = {200: {"content": {"text/event-stream": {}}}}

    @router.get("/runs/{run_id}/events", responses=streamed)
    async def events(
        run_id: RunIdOf,
        after: After | None = None,
        last_event_id: Annotated[int | None, Header(ge=0, le=MOST_SEQ)] = None,
        deltas: bool = False,
    ) -> Response:
        """Stream a run's durable records with a seq above `after` (or Last-Event-ID) until it has ended.

        With `deltas`, pieces of an answer that is being written come as `delta` events without an id: some may be
        lost, and the turn supersedes them.
        """
        # A browser that reconnects repeats the URL it began with and adds the header, so the header goes first.
        position = last_event_id if last_event_id is not None else after or 0
        slots.check()
        # Errors belong into the status line: this raises what the first step of `watch` would.
        await operations.records(run_id, after=position, limit=1)
        return stream(lambda: operations.watch(run_id, after=position, deltas=deltas), encode=record_or_delta)

    @router.get("/events", responses=streamed)
    async def all_events(
        after: Position | None = None, last_event_id: Annotated[Position | None, Header()] = None
    ) -> Response:
        """Stream the changes of status of all runs: `run` events, whose data is the run as listed.

        A `resync` event says that the list of runs has to be read anew: at the beginning, after a restart of the
        daemon, and when a reader was too slow.
        """
        slots.check()
        return stream(lambda: operations.watch_all(after=last_event_id or after), encode=news)

    return router
