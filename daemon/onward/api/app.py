"""The HTTP API `/v1`: a thin shell over `Operations`. It decides nothing and keeps nothing."""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import anyio
import fastapi.routing
import orjson
from fastapi import APIRouter, Depends, FastAPI, Header, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import StringConstraints
from starlette.exceptions import HTTPException
from starlette.responses import Response

import onward
from onward.api.acts import RunIdOf, acts
from onward.api.answers import answer, principals
from onward.api.events import HEARTBEAT_S, EventStream, StreamSlots, news, record_or_delta
from onward.api.gate import LOCAL_HOSTS, Gate
from onward.api.health import health
from onward.api.interactions import interactions
from onward.api.problems import MEDIA_TYPE, problem
from onward.api.requests import HoldRuns, Key, Nothing, ReleaseRuns, StartRun, StopDaemon, parse_statuses
from onward.core.ids import parse_run_id
from onward.core.text import clean
from onward.errors import BadRequest, OnwardError
from onward.ports.operations import Operations, StartRequest

PAGE_RUNS = 500
PAGE_RECORDS = 1000
PAGE_BYTES = 8 << 20

Json = dict[str, Any]
After = Annotated[int, Query(ge=0, le=(1 << 53) - 1)]
Position = Annotated[str, StringConstraints(max_length=64)]
PROBLEM = {
    "description": "Problem details (RFC 9457) with a stable `code`",
    "content": {MEDIA_TYPE: {}},
}


def make_app(
    operations: Operations,
    *,
    shutdown: anyio.Event,
    allowed_hosts: frozenset[str] = LOCAL_HOSTS,
    heartbeat_s: float = HEARTBEAT_S,
    is_in_a_call: Callable[[int], bool] = lambda _pid: False,
) -> FastAPI:
    """Return the ASGI application. Reads files: call it in a thread, or before the event loop runs.

    Args:
        operations: The daemon.
        shutdown: Ends all event streams when it is set; the same event that `serve` gets.
        allowed_hosts: Host names (without port) that a request may be addressed to.
        heartbeat_s: Seconds between two comments on an event stream.
        is_in_a_call: Says whether a process is a command of a run: it may change nothing. Called in a thread.
    """
    app = FastAPI(
        title="Onward",
        version=onward.__version__,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        responses={"default": PROBLEM},
    )
    app.add_middleware(Gate, allowed_hosts=allowed_hosts, is_in_a_call=is_in_a_call)
    for kind in (OnwardError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, _answer_problem)
    routers: tuple[Callable[[Operations], APIRouter], ...] = (
        _runs,
        acts,
        interactions,
        partial(_events, shutdown=shutdown, heartbeat_s=heartbeat_s),
        _daemon,
        health,
    )
    for router in (make(operations) for make in routers):
        _read_sources(router)
        app.include_router(router)
    return app


def _read_sources(router: APIRouter) -> None:
    """Have FastAPI read the source of every endpoint now; else it does so on the loop, at each one's first request."""
    read = getattr(fastapi.routing, "_extract_endpoint_context", None)
    if read is not None:
        for route in router.routes:
            read(getattr(route, "endpoint", None))


async def _answer_problem(request: Request, error: Exception) -> Response:
    return problem(error)


def _runs(operations: Operations) -> APIRouter:
    router = APIRouter(prefix="/v1/runs", tags=["runs"])

    @router.post("", status_code=201, responses={200: {"description": "The key was used before: the same run"}})
    async def start_run(
        body: StartRun,
        by: Annotated[str, Depends(principals())],
        idempotency_key: Annotated[Key | None, Header()] = None,
    ) -> Response:
        """Start a run; it is durable when this answers. The same Idempotency-Key gives the same run."""
        request = StartRequest(
            task=clean(body.task),
            workspace=body.workspace,
            by=by,
            agent=body.agent,
            model=body.model,
            on_restart=body.on_restart,
            limits=body.limits,
            idempotency_key=idempotency_key,
        )
        run, new = await operations.start_run(request)
        return answer(run, 201 if new else 200, {"location": f"/v1/runs/{run['run_id']}"})

    @router.get("")
    async def list_runs(
        status: Annotated[list[str] | None, Query()] = None,
        prefix: Annotated[str, Query(max_length=64)] = "",
        cursor: str | None = None,
        limit: Annotated[int, Query(ge=1, le=PAGE_RUNS)] = PAGE_RUNS,
    ) -> Response:
        """List runs, newest first. `next`, where it is not null, is the `cursor` of the next page."""
        statuses = parse_statuses(status)
        wanted = frozenset(statuses) if statuses else None
        # The filter comes after the cursor: the run that it names may have another status by now.
        runs = _behind(cursor, await operations.list_runs(None if cursor else wanted))
        chosen = [r for r in runs if (not wanted or r["status"] in wanted) and r["run_id"].startswith(prefix)]
        page = chosen[:limit]
        return answer({"runs": page, "next": page[-1]["run_id"] if len(chosen) > limit else None})

    @router.get("/{run_id}")
    async def get_run(run_id: RunIdOf) -> Response:
        """Return one run in full."""
        return answer(await operations.get_run(run_id))

    @router.get("/{run_id}/records")
    async def records(
        run_id: RunIdOf, after: After = 0, limit: Annotated[int, Query(ge=1, le=PAGE_RECORDS)] = PAGE_RECORDS
    ) -> Response:
        """Return durable records with a seq above `after`; `next`, where not null, is the next page's `after`."""
        found = await operations.records(run_id, after=after, limit=limit)
        return _record_page(found, limit)

    return router


def _events(operations: Operations, shutdown: anyio.Event, heartbeat_s: float) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["events"])
    slots = StreamSlots()
    stream = partial(EventStream, shutdown=shutdown, slots=slots, heartbeat_s=heartbeat_s)
    streamed: dict[int | str, dict[str, Any]] = {200: {"content": {"text/event-stream": {}}}}

    @router.get("/runs/{run_id}/events", responses=streamed)
    async def events(
        run_id: RunIdOf,
        after: After | None = None,
        last_event_id: Annotated[int | None, Header(ge=0, le=(1 << 53) - 1)] = None,
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


def _daemon(operations: Operations) -> APIRouter:
    router = APIRouter(tags=["daemon"])

    @router.get("/v1/daemon")
    async def daemon() -> Response:
        """Return version, pid, load and the report of the last recovery."""
        return answer(await operations.daemon())

    @router.get("/v1/agents")
    async def agents() -> Response:
        """Return the agent definitions and what is wrong with others."""
        return answer(await operations.agents())

    @router.post("/v1/daemon/reload")
    async def reload(body: Nothing) -> Response:
        """Read the configuration again; a bad one changes nothing, and `problems` says what is wrong with it."""
        return answer(await operations.reload())

    @router.post("/v1/daemon/hold")
    async def hold(body: HoldRuns, by: Annotated[str, Depends(principals())]) -> Response:
        """Let no run be entered, over restarts too, until it is released; those at work go on until they rest."""
        return answer(await operations.hold(by=by, reason=body.reason))

    @router.post("/v1/daemon/release")
    async def release(body: ReleaseRuns, by: Annotated[str, Depends(principals())]) -> Response:
        """Let one held run go on here, or (without `run_id`) all."""
        run_id = None if body.run_id is None else parse_run_id(body.run_id)
        return answer(await operations.release(run_id, by=by))

    @router.post("/v1/daemon/stop", status_code=202)
    async def stop(body: StopDaemon) -> Response:
        """Begin to drain; answers at once. Commands in flight are ended unless `leave_running`."""
        await operations.stop(leave_running=body.leave_running)
        return answer({"stopping": True}, 202)

    return router


def _behind(cursor: str | None, runs: list[Json]) -> list[Json]:
    if cursor is None:
        return runs
    run_id = parse_run_id(cursor)
    at = next((n for n, run in enumerate(runs) if run["run_id"] == run_id), None)
    if at is None:
        raise BadRequest(f"the cursor {cursor!r} names no run; begin again without it")
    return runs[at + 1 :]


def _record_page(records: list[Json], limit: int) -> Response:
    lines: list[bytes] = []
    room = PAGE_BYTES
    for record in records:
        lines.append(orjson.dumps(record))
        room -= len(lines[-1])
        if room < 0:
            break
    more = room < 0 or len(records) == limit
    following = str(records[len(lines) - 1]["seq"]).encode() if more else b"null"
    return Response(b'{"records":[%s],"next":%s}' % (b",".join(lines), following), media_type="application/json")
