"""Chat completions, as OpenAI and many other servers understand them."""

from typing import Any

import pytest

from onward.core.conversation import Block
from onward.native.models.openai_api import body_of
from onward.native.models.openai_stream import Collector
from onward.ports.model import FailureClass
from tests.fake_server.answers import Answer, call, in_order, refused, text, thinking
from tests.fake_server.server import serving
from tests.native.models.asking import TASK, connected, failure_of, request

Json = dict[str, Any]


def delta(finish: str | None = None, **members: Any) -> Json:
    return {"choices": [{"index": 0, "delta": members, "finish_reason": finish}]}


def piece(name: str | None = None, arguments: Any = None, **members: Any) -> Json:
    return {**members, "function": {"name": name, "arguments": arguments}}


def collected(*chunks: Json) -> Collector:
    collector = Collector()
    for chunk in (*chunks, delta("stop")):
        collector.add(chunk)
    assert collector.whole
    return collector


def calls_of(*pieces: Json) -> list[tuple[str, str, Any]]:
    """Return (id, name, arguments) of the calls that these pieces make, each in a chunk of its own."""
    content = collected(*(delta(tool_calls=[each]) for each in pieces)).content
    return [(block["id"], block["name"], block["input"]) for block in content]


A, B = ("a", "f", {"x": 1}), ("b", "g", {"y": 2})


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([piece("f", "", id="a", index=0), piece(None, '{"x"', index=0), piece(None, ": 1}", index=0)], [A]),
        ([piece("f", '{"x": 1}', id="a", index=0), piece("g", '{"y": 2}', id="b", index=1)], [A, B]),
        # Everything has the index 0, or none at all.
        ([piece("f", '{"x": 1}', id="a", index=0), piece("g", '{"y": 2}', id="b", index=0)], [A, B]),
        ([piece("f", '{"x": 1}', id="a"), piece("g", "", id="b"), piece(None, '{"y": 2}')], [A, B]),
        # No ids, or one for all: the conversation gives its own where they do not fit.
        ([piece("f", '{"x": 1}', index=0), piece("g", '{"y": 2}', index=0)], [("", *A[1:]), ("", *B[1:])]),
        ([piece("f", '{"x": 1}', id="", index=0), piece("g", "{}", id=None, index=1)], [("", *A[1:]), ("", "g", {})]),
        ([piece("f", '{"x": 1}', id="a", index=0), piece("g", '{"y": 2}', id="a", index=0)], [A, ("a", *B[1:])]),
        # The name again in each piece; an object instead of text; no arguments.
        ([piece("f", '{"x"', id="a", index=0), piece("f", ": 1}", id="a", index=0)], [A]),
        ([piece("f", '{"x": 1}', id="a", index=0), piece("f", "", id="a", index=0)], [A]),
        ([piece("f", {"x": 1}, id="a", index=0)], [A]),
        ([piece("f", "", id="a", index=0)], [("a", "f", {})]),
        ([piece("f", None, id="a", index=0)], [("a", "f", {})]),
        ([piece(None, '{"x": 1}', index=0)], []),
        # Pieces of two calls in turns.
        ([piece("f", "", id="a", index=0), piece("g", "", id="b", index=1), piece(None, '{"x": 1}', index=0),
          piece(None, '{"y": 2}', index=1)], [A, B]),
    ],
)  # fmt: skip
def test_calls_are_understood_in_every_form(pieces: list[Json], expected: list[Any]) -> None:
    assert calls_of(*pieces) == expected


def test_the_old_form_of_a_call_counts_only_alone() -> None:
    old = [delta(function_call={"name": "f", "arguments": '{"x"'}), delta(function_call={"arguments": ": 1}"})]
    assert collected(*old).content == [{"type": "tool_use", "id": "", "name": "f", "input": {"x": 1}}]
    both = collected(*old, delta(tool_calls=[piece("f", '{"x": 1}', id="a", index=0)]))
    assert [block["id"] for block in both.content] == ["a"]
    assert both.stop_reason == "tool_use"


def test_text_that_comes_in_parts_and_what_is_blank() -> None:
    collector = collected(delta(content=[{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]))
    assert collector.content == [{"type": "text", "text": "ab"}]
    assert collected(delta(content=" \n"), delta(content=None)).content == []


def test_a_refusal_is_text_and_a_reason() -> None:
    collector = collected(delta(refusal="I will "), delta(refusal="not."))
    assert (collector.content, collector.stop_reason) == ([text("I will not.")], "refusal")


async def test_an_error_inside_the_stream_is_no_answer() -> None:
    for chunk in (
        {"error": {"code": 503, "message": "Provider is overloaded"}},
        {
            **delta("error"),
            "choices": [{"delta": {}, "finish_reason": "error", "error": {"code": 503, "message": "x"}}],
        },
    ):
        with serving(in_order(Answer(events=[delta(content="a"), chunk]))) as fake:
            async with connected("openai", fake) as model:
                assert (await failure_of(model)).failure is FailureClass.OVERLOADED


async def test_usage_that_is_missing_is_estimated() -> None:
    with serving(in_order(Answer(blocks=[text("x" * 100)], usage=None))) as fake:
        async with connected("openai", fake) as model:
            usage = (await model.infer(request())).usage
    assert usage["estimated"] is True
    assert usage["input_tokens"] > 20
    assert usage["output_tokens"] > 20


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
async def test_reasoning_goes_back_in_the_field_that_it_came_in(name: str) -> None:
    thought = thinking("I think so.", name)
    with serving(in_order(Answer(blocks=[thought, call("shell", {}, "a")]))) as fake:
        async with connected("openai", fake) as model:
            turn = await model.infer(request())
            assert turn.content[0] == thought
            await model.infer(request(TASK, said("assistant", *turn.content), said("user", result("a"))))
        assert fake.problems == []
        assert fake.requests[1].body["messages"][2][name] == "I think so."


REFUSALS: list[tuple[str, Json]] = [
    ("'messages.2': property 'reasoning_content' is unsupported", {"reasoning_content": "hm"}),
    ("stream_options: Extra inputs are not permitted", {"stream_options": {"include_usage": True}}),
    ("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.", {"max_tokens": 50}),
]


@pytest.mark.parametrize(("message", "refused_part"), REFUSALS, ids=[next(iter(part)) for _, part in REFUSALS])
async def test_an_optional_part_that_a_server_refuses_is_left_out(message: str, refused_part: Json) -> None:
    """Asked again once, and not sent again in later requests."""
    name = next(iter(refused_part))
    messages = (TASK, said("assistant", thinking("hm", "reasoning_content"), text("x")), said("user", text("y")))
    with serving(in_order(refused(400, "", message), Answer(blocks=[text("x")]))) as fake:
        async with connected("openai", fake, max_output_tokens=50) as model:
            for _ in range(2):
                await model.infer(request(*messages))
        holds = [name in asked.body or name in asked.body["messages"][2] for asked in fake.requests]
    assert holds == [True, False, False]


async def test_a_model_that_cannot_reason_and_use_tools_here_is_told_not_to_reason() -> None:
    message = (
        "Function tools with reasoning_effort are not supported for gpt-test in /v1/chat/completions. To use function "
        "tools, use /v1/responses or set reasoning_effort to 'none'."
    )
    with serving(in_order(refused(400, "invalid_request_error", message), Answer(blocks=[text("x")]))) as fake:
        async with connected("openai", fake) as model:
            for _ in range(2):
                await model.infer(request())
        assert [asked.body.get("reasoning_effort") for asked in fake.requests] == [None, "none", "none"]


def test_the_view_becomes_messages() -> None:
    asked = said("assistant", text("a"), text("b"), call("shell", {"é": 1}, "x"), call("shell", {}, "y"))
    answered = said("user", result("x"), result("y"), text("one"), text("two"))
    body = body_of(request(TASK, asked, answered), "m", 5, is_own_server=False)
    assert body["max_completion_tokens"] == 5
    system, task, assistant, *rest = body["messages"]
    assert (system["content"], task["content"], assistant["content"]) == ("You work.", "Do it.", "a\n\nb")
    assert [known["function"]["arguments"] for known in assistant["tool_calls"]] == ['{"é":1}', "{}"]
    assert rest == [
        {"role": "tool", "tool_call_id": "x", "content": "fine"},
        {"role": "tool", "tool_call_id": "y", "content": "fine"},
        {"role": "user", "content": "one\n\ntwo"},
    ]
    only_calls = body_of(request(TASK, said("assistant", call("shell", {}, "x"))), "m", None, is_own_server=True)
    assert only_calls["messages"][2]["content"] is None
    assert not {"max_tokens", "max_completion_tokens"} & set(only_calls)


def said(role: str, *blocks: Block) -> Json:
    return {"role": role, "content": list(blocks)}


def result(known: str) -> Block:
    return {"type": "tool_result", "tool_use_id": known, "content": "fine"}
