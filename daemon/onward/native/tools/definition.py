"""From a typed function to a tool: schema, validation and threads in one place."""

import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, get_type_hints

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar
from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from onward.core.text import clean, clean_json, excerpt
from onward.core.vocabulary import Effect, Outcome
from onward.errors import OnwardError
from onward.native.tools.schema import described, parameters_schema, problems
from onward.ports.tool import ToolContext, ToolResult, ToolSpec

TOOL_THREADS = 32

_threads: RunVar[CapacityLimiter] = RunVar("onward-tool-threads")


class ToolError(OnwardError):
    """A tool cannot do what it was asked; the message is what the model sees."""

    code = "tool"


def failure(message: str) -> ToolResult:
    """Return the error result that says `message`."""
    return ToolResult(text=excerpt(f"[error] {clean(message)}"), outcome=Outcome.ERROR)


class FunctionTool:
    """A tool made from a function `(context, *, name: type = default, ...) -> ToolResult`.

    The model is told the function's name, its docstring without the Args, and a JSON schema of its keyword parameters.
    A null for a parameter that has a default counts as left out, since models send that for what they do not need.
    """

    def __init__(
        self, function: Callable[..., ToolResult | Awaitable[ToolResult]], *, effect: Effect, runs_process: bool
    ) -> None:
        self.function = function
        # Made at once: a schema made at the first call would hold up the event loop.
        self._arguments = _arguments_of(function)
        description, arguments = described(function)
        self.spec = ToolSpec(
            name=function.__name__,
            description=description,
            parameters=parameters_schema(self._arguments, arguments),
            effect=effect,
            runs_process=runs_process,
            stoppable=effect is Effect.READ and not runs_process,
        )

    async def call(self, context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
        """Run one call to its end; a plain function runs in a thread, which goes on if the call is given up."""
        try:
            values = self._validated(arguments)
        except ValidationError as error:
            return failure(
                f"invalid arguments for {self.spec.name}, so nothing was done:\n{problems(error, self.spec.parameters)}"
            )
        try:
            return await self._run(context, values)
        except ToolError as error:
            return failure(str(error))

    async def _run(self, context: ToolContext, values: dict[str, Any]) -> ToolResult:
        if inspect.iscoroutinefunction(self.function):
            result: ToolResult = await self.function(context, **values)
            return result
        work: Callable[[], Any] = partial(self.function, context, **values)
        done: ToolResult = await to_thread.run_sync(work, abandon_on_cancel=True, limiter=_limiter())
        return done

    def _validated(self, arguments: dict[str, Any]) -> dict[str, Any]:
        fields = self._arguments.model_fields
        # Cleaned here too: what runs is exactly what the journal holds, and no NUL ever gets to the kernel.
        given = clean_json(arguments)
        if isinstance(given, dict):
            given = {k: v for k, v in given.items() if v is not None or k not in fields or fields[k].is_required()}
        model = self._arguments.model_validate(given)
        return {name: getattr(model, name) for name in fields}


def _arguments_of(function: Callable[..., Any]) -> type[BaseModel]:
    hints = get_type_hints(function, include_extras=True)
    fields: dict[str, Any] = {
        name: (hints[name], ... if parameter.default is parameter.empty else parameter.default)
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }
    return create_model(function.__name__, __config__=ConfigDict(extra="forbid", strict=True), **fields)


def tool(
    *, effect: Effect, runs_process: bool = False
) -> Callable[[Callable[..., ToolResult | Awaitable[ToolResult]]], FunctionTool]:
    """Make a tool of the decorated function, plain or async."""
    return partial(FunctionTool, effect=effect, runs_process=runs_process)


def _limiter() -> CapacityLimiter:
    """Tools have threads of their own, so that a hung file system cannot take those that flush the journals."""
    try:
        return _threads.get()
    except LookupError:
        limiter = CapacityLimiter(TOOL_THREADS)
        _threads.set(limiter)
        return limiter
