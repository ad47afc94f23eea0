"""A tool says exactly what it takes, takes nothing else, and does nothing when it was asked wrongly."""

import threading
from typing import Annotated, Any, Literal

import pytest
from annotated_types import Gt

from onward.core.vocabulary import Effect, Outcome
from onward.native.tools.definition import ToolError, tool
from onward.native.tools.registry import builtin_tools
from onward.ports.tool import Tool, ToolContext, ToolResult
from tests.native.tools.world import World

calls: list[dict[str, Any]] = []


@tool(effect=Effect.WRITE)
async def paint(
    context: ToolContext,
    *,
    colour: Literal["red", "blue"],
    coats: Annotated[int, Gt(0)] = 1,
    width_m: float | None = None,
    names: list[str] | None = None,
    dry: bool = False,
) -> ToolResult:
    """Paint the wall.

    It must be
    clean.

    Args:
        colour: Which of
            the two.
        coats (int): How many.

    Returns:
        Nothing that the model is told.
    """
    calls.append({"colour": colour, "coats": coats, "width_m": width_m, "names": names, "dry": dry})
    return ToolResult(text=context.run_id)


@pytest.fixture(autouse=True)
def no_calls_yet() -> None:
    calls.clear()


def test_the_spec_is_made_from_the_function() -> None:
    assert (paint.spec.name, paint.spec.effect, paint.spec.runs_process) == ("paint", Effect.WRITE, False)
    assert paint.spec.description == "Paint the wall.\n\nIt must be clean."
    assert paint.spec.parameters == {
        "type": "object",
        "properties": {
            "colour": {"type": "string", "enum": ["red", "blue"], "description": "Which of the two."},
            "coats": {"type": "integer", "exclusiveMinimum": 0, "default": 1, "description": "How many."},
            "width_m": {"type": "number"},
            "names": {"type": "array", "items": {"type": "string"}},
            "dry": {"type": "boolean", "default": False},
        },
        "required": ["colour"],
        "additionalProperties": False,
    }


async def test_defaults_are_filled_in_and_null_means_left_out(world: World) -> None:
    result = await world.call(paint, colour="red", coats=None, width_m=2, dry=None)

    assert result == ToolResult(text="worker-1")
    assert calls == [{"colour": "red", "coats": 1, "width_m": 2.0, "names": None, "dry": False}]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "- colour: is missing"),
        ({"colour": None}, "- colour: Input should be 'red' or 'blue', not None"),
        ({"colour": "green"}, "- colour: Input should be 'red' or 'blue', not 'green'"),
        ({"colour": "red", "coats": "2"}, "- coats: Input should be a valid integer, not '2'"),
        ({"colour": "red", "coats": True}, "- coats: Input should be a valid integer, not True"),
        ({"colour": "red", "coats": 0}, "- coats: Input should be greater than 0, not 0"),
        ({"colour": "red", "names": [1]}, "- names.0: Input should be a valid string, not 1"),
        ({"colour": "red", "color": "x"}, "- color: is no argument of this tool"),
        ({"colour": "x" * 9999}, "'" + "x" * 79 + "..."),
    ],
)
async def test_wrong_arguments_are_named_with_what_is_expected(
    world: World, arguments: dict[str, Any], says: str
) -> None:
    result = await paint.call(world.context, arguments)

    assert result.outcome is Outcome.ERROR
    assert result.text.startswith("[error] invalid arguments for paint, so nothing was done:\n")
    assert says in result.text
    assert result.text.endswith(
        "Expected: colour ('red' | 'blue'), coats (integer, default 1), width_m (number, optional), "
        "names (array of string, optional), dry (boolean, default False)"
    )
    assert len(result.text) < 1000
    assert not calls


async def test_many_wrong_arguments_give_a_bounded_answer(world: World) -> None:
    result = await paint.call(world.context, {f"{n:0>9000}": n for n in range(5000)})

    assert len(result.text) < 10_000


async def test_arguments_are_clean_when_the_function_gets_them(world: World) -> None:
    await world.call(paint, colour="red", names=["a\0", "\ud83c"])

    assert calls[0]["names"] == ["a\ufffd", "\ufffd"]


@tool(effect=Effect.READ)
def where(context: ToolContext) -> ToolResult:
    """Say in which thread this runs."""
    del context
    return ToolResult(text=threading.current_thread().name)


async def test_a_plain_function_runs_in_a_thread_and_may_take_nothing(world: World) -> None:
    assert (await world.call(where)).text != threading.current_thread().name
    assert (await world.refused(where, a=1)).endswith("Expected: no arguments")


@tool(effect=Effect.READ)
def fail(context: ToolContext, *, how: str) -> ToolResult:
    """Fail."""
    del context
    raise {"tool": ToolError("no \ud83c"), "os": OSError(11, "no threads")}[how]


async def test_what_a_tool_cannot_do_is_a_result_and_what_could_not_start_is_raised(world: World) -> None:
    assert await world.call(fail, how="tool") == ToolResult(text="[error] no \ufffd", outcome=Outcome.ERROR)
    with pytest.raises(OSError, match="no threads"):
        await world.call(fail, how="os")


def test_the_built_in_tools_have_the_effects_that_recovery_relies_on() -> None:
    assert {name: tool.spec.effect for name, tool in builtin_tools().items()} == {
        "shell": Effect.UNKNOWN,
        "read_file": Effect.READ,
        "write_file": Effect.IDEMPOTENT,
        "edit_file": Effect.WRITE,
        "list_files": Effect.READ,
        "search_files": Effect.READ,
        "finish": Effect.IDEMPOTENT,
        "ask_user": Effect.READ,
        "present_for_review": Effect.READ,
        "edit_document": Effect.READ,
        "transition": Effect.READ,
    }
    assert [name for name, tool in builtin_tools().items() if tool.spec.runs_process] == ["shell"]


@pytest.mark.parametrize("tool", builtin_tools().values(), ids=builtin_tools())
def test_every_argument_of_a_built_in_tool_is_described(tool: Tool) -> None:
    assert tool.spec.description
    assert all(found["description"] for found in tool.spec.parameters["properties"].values())
    assert not any("title" in found for found in (tool.spec.parameters, *tool.spec.parameters["properties"].values()))


async def test_finish_ends_the_run_with_a_status(world: World) -> None:
    finish = builtin_tools()["finish"]

    assert await world.call(finish, result="42") == ToolResult(text="42", ends_run="completed")
    assert await world.call(finish, result="no", status="failed") == ToolResult(text="no", ends_run="failed")
    assert "'completed' or 'failed'" in await world.refused(finish, result="x", status="done")
    long = await world.call(finish, result="ä" * 50_000)
    assert (len(long.text.encode()) <= 65536, long.full) == (True, ("ä" * 50_000).encode())
