"""What people do to runs: messages, pause, resume, cancel, revive. Each is durable when it is answered."""

from typing import Annotated

from fastapi import APIRouter, Depends, Header
from starlette.responses import Response

from onward.api.answers import answer, principals
from onward.api.requests import Key, Nothing, Pause, Resume, Revive, RunIdOf, SendMessage
from onward.ports.operations import Operations


def acts(operations: Operations) -> APIRouter:
    """Return the routes that act on a run. Reads the names of users: not on the loop."""
    router = APIRouter(prefix="/v1/runs/{run_id}", tags=["runs"])
    by_whom = Annotated[str, Depends(principals())]

    @router.post("/messages")
    async def send(
        run_id: RunIdOf, body: SendMessage, by: by_whom, idempotency_key: Annotated[Key | None, Header()] = None
    ) -> Response:
        """Say something to a run. The Idempotency-Key becomes the message's id: the same one is said once.

        Ids that begin with `answer-`, `choose-`, `revival-` or `stage-` are Onward's own and refused.
        """
        return answer(await operations.send(run_id, body.text, by=by, message_id=idempotency_key))

    @router.post("/pause")
    async def pause(run_id: RunIdOf, body: Pause, by: by_whom) -> Response:
        """Let a run begin nothing new; a paused one stays as it is."""
        return answer(await operations.pause(run_id, by=by, reason=body.reason))

    @router.post("/resume")
    async def resume(run_id: RunIdOf, body: Resume, by: by_whom) -> Response:
        """Let a paused or parked run go on; `add` raises limits, and adds again when it is repeated."""
        return answer(await operations.resume(run_id, by=by, add=dict(body.add)))

    @router.post("/cancel")
    async def cancel(run_id: RunIdOf, body: Nothing, by: by_whom) -> Response:
        """End a run and its commands; a cancelled one stays as it is."""
        return answer(await operations.cancel(run_id, by=by))

    @router.post("/revive")
    async def revive(run_id: RunIdOf, body: Revive, by: by_whom) -> Response:
        """Bring back a quarantined, failed, paused, parked, damaged or interrupted run; its counts begin anew.

        `revival` says from what it came back; one that is at work stays as it is.
        """
        return answer(await operations.revive(run_id, by=by, max_revivals=body.max_revivals))

    return router
