"""What monitoring asks: is it alive, is it ready, what does it measure."""

from fastapi import APIRouter
from starlette.responses import PlainTextResponse, Response

from onward.api.answers import answer
from onward.errors import Unreachable
from onward.ports.operations import METRICS_TYPE, Operations


def health(operations: Operations) -> APIRouter:
    """Return the routes of monitoring."""
    router = APIRouter(tags=["daemon"])

    @router.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Return what was counted and measured, in the text format of Prometheus."""
        return Response(operations.metrics(), media_type=METRICS_TYPE)

    @router.get("/healthz")
    async def healthz() -> Response:
        """Answer as long as the daemon lives."""
        return answer({"ok": True})

    @router.get("/readyz")
    async def readyz() -> Response:
        """Answer 200 once the runs are listed, 503 before. `held` says by its words why no run is entered."""
        known = await operations.daemon()
        if not known["ready"]:
            raise Unreachable("the daemon is still starting")
        return answer({"ready": True, "held": sorted(known["hold"]["reasons"])})

    return router
