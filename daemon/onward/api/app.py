"""The HTTP API `/v1`: a thin shell over `Operations`. It decides nothing and keeps nothing."""

from collections.abc import Callable
from functools import partial

import anyio
import fastapi.routing
from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

import onward
from onward.api.acts import acts
from onward.api.daemon import daemon_routes
from onward.api.events import HEARTBEAT_S
from onward.api.gate import LOCAL_HOSTS, Gate
from onward.api.health import health
from onward.api.interactions import interactions
from onward.api.problems import MEDIA_TYPE, problem
from onward.api.runs import runs
from onward.api.streams import streams
from onward.errors import OnwardError
from onward.ports.operations import Operations

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
        runs,
        acts,
        interactions,
        partial(streams, shutdown=shutdown, heartbeat_s=heartbeat_s),
        daemon_routes,
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
