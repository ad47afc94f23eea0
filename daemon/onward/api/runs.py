"""Runs: started, listed, and read."""

from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Depends, Header, Query
from starlette.responses import Response

from onward.api.answers import answer, principals
from onward.api.requests import After, Key, RunIdOf, StartRun, parse_statuses
from onward.core.ids import parse_run_id
from onward.core.text import clean
from onward.errors import BadRequest
from onward.ports.operations import Operations, StartRequest

PAGE_RUNS = 500
PAGE_RECORDS = 1000
PAGE_BYTES = 8 << 20

Json = dict[str, Any]


def runs(operations: Operations) -> APIRouter:
    """Return the routes that start, list and read runs. Reads the names of users: not on the loop."""
    router = APIRouter(prefix="/v1/runs", tags=["runs"])

    @router.post("", status_code=201, responses={200: {"description": "The key was used before: the same run"}})
    async def start_run(
        body: StartRun,
        by: Annotated[str, Depends(principals())],
        idempotency_key: Annotated[Key | None, Header()] = None,
    ) -> Response:
        """Start a run; it is durable when this answers. The same Idempotency-Key gives the same run."""
        run, new = await operations.start_run(_request(body, by, idempotency_key))
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
        return _run_page(chosen, limit)

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


def _request(body: StartRun, by: str, idempotency_key: str | None) -> StartRequest:
    return StartRequest(
        task=clean(body.task),
        workspace=body.workspace,
        by=by,
        agent=body.agent,
        model=body.model,
        on_restart=body.on_restart,
        limits=body.limits,
        idempotency_key=idempotency_key,
    )


def _behind(cursor: str | None, runs: list[Json]) -> list[Json]:
    if cursor is None:
        return runs
    run_id = parse_run_id(cursor)
    at = next((n for n, run in enumerate(runs) if run["run_id"] == run_id), None)
    if at is None:
        raise BadRequest(f"the cursor {cursor!r} names no run; begin again without it")
    return runs[at + 1 :]


def _run_page(runs: list[Json], limit: int) -> Response:
    page = runs[:limit]
    return answer({"runs": page, "next": page[-1]["run_id"] if len(runs) > limit else None})


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
