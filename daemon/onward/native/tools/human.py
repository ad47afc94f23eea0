"""Tools whose result is a human's word, and the one that chooses the next stage.

The human ones are never executed: `core.gates` turns such a call into a durable question, and its answer is the result.
"""
# ruff: noqa: D417  # the Args are what the model is told

from typing import Any, Literal

from onward.core.vocabulary import Effect
from onward.native.tools.definition import ToolError, tool
from onward.ports.tool import ToolContext, ToolResult

_NEVER = "this is answered by a human, never by running it"


@tool(effect=Effect.READ)
async def ask_user(
    context: ToolContext,
    *,
    question: str,
    kind: Literal["text", "choice", "multi", "form"] = "text",
    options: list[Any] | None = None,
) -> ToolResult:
    """Ask the human who started the run, and wait for the answer, however long it takes.

    Args:
        question: What to ask; all that is needed to answer it.
        kind: `text`, `choice` (one of the options), `multi` (some of them), or `form` (several fields at once).
        options: For `choice` and `multi` the texts to choose from. For `form` its fields, each an object with `name`,
            `type` (text, number, boolean or choice) and for a choice its `options`.
    """
    raise ToolError(_NEVER)


@tool(effect=Effect.READ)
async def present_for_review(context: ToolContext, *, title: str, text: str) -> ToolResult:
    """Show a document to the human, who approves it or comments on it.

    Args:
        title: What it is.
        text: The whole document.
    """
    raise ToolError(_NEVER)


@tool(effect=Effect.READ)
async def edit_document(context: ToolContext, *, title: str, text: str) -> ToolResult:
    """Give a text to the human to change; the result is the text as the human left it.

    Args:
        title: What it is.
        text: The text to start from.
    """
    raise ToolError(_NEVER)


@tool(effect=Effect.READ)
async def transition(context: ToolContext, *, stage: str, reason: str) -> ToolResult:
    """End this stage and go on with another one. Call it alone, when the work of this stage is done.

    Args:
        stage: The next stage, one of those that this stage leads to.
        reason: Why this one, and what it has to know of this stage's work.
    """
    return ToolResult(text=f"The next stage is {stage}: {reason}", moves_to=stage)
