"""The daemon itself: what it is and does, its configuration, holding its runs back, and its end."""

from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.responses import Response

from onward.api.answers import answer, principals
from onward.api.requests import HoldRuns, Nothing, ReleaseRuns, StopDaemon
from onward.core.ids import parse_run_id
from onward.ports.operations import Operations


def daemon_routes(operations: Operations) -> APIRouter:
    """Return the routes about the daemon itself. Reads the names of users: not on the loop."""
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
