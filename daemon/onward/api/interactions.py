"""The questions that wait for a human, and their answers."""

from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.responses import Response

from onward.api.answers import answer, principals
from onward.api.requests import Answer, interaction_of
from onward.core.ids import RunId, parse_run_id
from onward.ports.operations import Operations


def interactions(operations: Operations) -> APIRouter:
    """Return the routes about questions. Reads the names of users: not on the loop."""
    router = APIRouter(prefix="/v1/interactions", tags=["questions"])

    @router.get("")
    async def list_questions(run_id: str | None = None) -> Response:
        """List the questions that are open, of one run or of all, the oldest first."""
        found = await operations.interactions(None if run_id is None else parse_run_id(run_id))
        shown = [{"id": f"{question['run_id']}.{question['interaction_id']}", **question} for question in found]
        return answer({"interactions": shown})

    @router.post("/{interaction_id}/answer")
    async def answer_question(
        which: Annotated[tuple[RunId, str], Depends(interaction_of)],
        body: Answer,
        by: Annotated[str, Depends(principals())],
    ) -> Response:
        """Answer a question. The first durable answer counts: the same one again is the same success, another is 409.

        `{interaction_id}` is `RUN.QUESTION`, as listed under `id`.
        """
        run_id, question = which
        return answer(await operations.answer(run_id, question, body.answer, by=by))

    return router
