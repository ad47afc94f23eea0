"""The Messages API: thinking, caching, usage."""

from typing import Any

from onward.core.conversation import Block
from onward.native.models import anthropic_api as api
from onward.native.models.prices import Card
from onward.ports.model import FailureClass
from tests.fake_server.answers import Answer, call, in_order, refused, text, thinking
from tests.fake_server.server import serving
from tests.native.models.asking import TASK, connected, failure_of, request

SIGNED = thinking("é\u2028 hm\n ", "EqQB+/==")
REDACTED = {"type": "redacted_thinking", "data": "Em=/+"}


def result(known: str, said: str = "x") -> Block:
    return {"type": "tool_result", "tool_use_id": known, "content": said}


def user(*blocks: Block) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: Block) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


async def test_thinking_comes_and_goes_back_byte_for_byte() -> None:
    hidden = thinking("", "omitted==")
    with serving(in_order(Answer(blocks=[SIGNED, REDACTED, hidden, call("shell", {}, "a")]))) as fake:
        async with connected("anthropic", fake) as model:
            turn = await model.infer(request())
            assert turn.content == [SIGNED, REDACTED, hidden, call("shell", {}, "a")]
            await model.infer(request(TASK, assistant(*turn.content), user(result("a"))))
        assert fake.problems == []
        assert fake.requests[1].body["messages"][1]["content"] == turn.content


async def test_the_cache_is_marked_at_what_stays() -> None:
    """Tools, system prompt and the two newest messages of the user; the shared blocks themselves stay clean."""
    messages = [TASK]
    for known in "abc":
        messages += [assistant(call("shell", {}, known)), user(result(known), text("go"))]
    with serving(in_order(Answer(blocks=[text("x")]))) as fake:
        async with connected("anthropic", fake) as model:
            await model.infer(request(*messages))
        body = fake.requests[0].body
    assert [block for m in messages for block in m["content"] if "cache_control" in block] == []
    marked = [[("cache_control" in block) for block in m["content"]] for m in body["messages"]]
    assert marked == [[False], [False], [False, False], [False], [False, True], [False], [False, True]]
    assert body["tools"][-1]["cache_control"] == body["system"][0]["cache_control"] == {"type": "ephemeral"}


async def test_what_the_cache_read_and_wrote_is_part_of_the_input() -> None:
    usage = {"input": 10, "output": 3, "read": 200, "written": 50}
    with serving(in_order(Answer(blocks=[text("x")], usage=usage))) as fake:
        async with connected("anthropic", fake) as model:
            turn = await model.infer(request())
    assert turn.usage == {"input_tokens": 260, "output_tokens": 3, "cache_read_tokens": 200, "cache_write_tokens": 50}


async def test_how_long_an_answer_may_be() -> None:
    with serving(in_order(Answer(blocks=[text("x")]))) as fake:
        for card, members in (
            (Card(), {}),
            (Card(max_output_tokens=4096), {}),
            (Card(max_output_tokens=128_000), {}),
            (Card(max_output_tokens=4096), {"max_output_tokens": 9}),
        ):
            async with connected("anthropic", fake, card, **members) as model:
                await model.infer(request())
        assert [asked.body["max_tokens"] for asked in fake.requests] == [16_384, 4096, 32_768, 9]


async def test_thinking_that_is_refused_is_left_out_once_and_from_then_on() -> None:
    """One repair, no loop: the second refusal is the end."""
    messages = (TASK, assistant(SIGNED, call("shell", {}, "a")), user(result("a")))
    wrong = refused(400, "invalid_request_error", "messages.1.content.0: Invalid `signature` in `thinking` block")
    with serving(in_order(wrong, Answer(blocks=[text("x")]))) as fake:
        fake.issued[SIGNED["signature"]] = SIGNED["thinking"]
        async with connected("anthropic", fake) as model:
            for _ in range(2):
                await model.infer(request(*messages))
        sent = [[block["type"] for block in asked.body["messages"][1]["content"]] for asked in fake.requests]
        assert sent == [["thinking", "tool_use"], ["tool_use"], ["tool_use"]]
    with serving(in_order(wrong)) as fake:
        fake.issued[SIGNED["signature"]] = SIGNED["thinking"]
        async with connected("anthropic", fake) as model:
            assert (await failure_of(model, request(*messages))).failure is FailureClass.INVALID_REQUEST
        assert len(fake.requests) == 2


async def test_an_error_event_in_the_stream_has_the_class_of_its_name() -> None:
    events = [{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}]
    with serving(in_order(Answer(events=events))) as fake:
        async with connected("anthropic", fake) as model:
            failure = await failure_of(model)
    assert (failure.failure, "Overloaded (200 overloaded_error)" in str(failure)) == (FailureClass.OVERLOADED, True)


def test_a_block_that_onward_does_not_know_stays_as_it_is() -> None:
    block = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"q": 1}, "caller": {"a": None}}
    collector = api.Collector()
    for event in (
        {"type": "message_start", "message": {"usage": {"input_tokens": 1, "output_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_stop", "index": 0},
        {"type": "something_new"},
        {"type": "message_delta", "delta": {"stop_reason": "pause_turn"}, "usage": {"output_tokens": 5}},
        {"type": "message_stop"},
    ):
        collector.add(event)
    assert (collector.whole, collector.content, collector.stop_reason) == (True, [block], "length")
    assert collector.usage == {"input_tokens": 1, "output_tokens": 5}
