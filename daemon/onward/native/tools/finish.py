"""The end of a run, said by the model."""
# ruff: noqa: D417  # the Args are what the model is told

from typing import Literal

from onward.core.text import EXCERPT_BYTES, excerpt
from onward.core.vocabulary import Effect
from onward.native.tools.definition import tool
from onward.ports.tool import ToolContext, ToolResult


@tool(effect=Effect.IDEMPOTENT)
async def finish(
    context: ToolContext,
    *,
    result: str,
    status: Literal["completed", "failed"] = "completed",
) -> ToolResult:
    """End the run. Call it once, alone, when the task is done or cannot be done.

    Args:
        result: What came out, for the person who asked: what was done, and what was not.
        status: `completed`, or `failed` when the task could not be done.
    """
    raw = result.encode()
    full = raw if len(raw) > EXCERPT_BYTES else None
    return ToolResult(text=excerpt(result), full=full, ends_run=status)
