"""What both providers have in common, through the real SDKs."""

import contextlib
from typing import Any

import anyio
import pytest

from onward.native.models.prices import Card, Price
from onward.ports.model import FailureClass
from onward.testing.clocks import FakeClock
from tests.fake_server.answers import Answer, call, in_order, in_turn, refused, text, thinking
from tests.fake_server.server import KEY, serving
from tests.native.models.asking import PROVIDERS, TASK, connected, failure_of, request
from tests.support import eventually

both = pytest.mark.parametrize("kind", PROVIDERS)

F = FailureClass
FAILURES: list[tuple[Answer, FailureClass]] = [
    (refused(401, "authentication_error", "no"), F.AUTH),
    (refused(403, "permission_error", "no"), F.AUTH),
    (refused(429, "rate_limit_error", "slowly"), F.RATE_LIMITED),
    (refused(429, "insufficient_quota", "You exceeded your current quota"), F.QUOTA),
    (refused(400, "invalid_request_error", "Your credit balance is too low to access the API."), F.QUOTA),
    (refused(402, "billing_error", "pay"), F.QUOTA),
    (refused(529, "overloaded_error", "Overloaded"), F.OVERLOADED),
    (refused(503, "", "Service Unavailable"), F.OVERLOADED),
    (refused(500, "api_error", "Internal server error"), F.SERVER_ERROR),
    (refused(502, "", "Bad gateway"), F.SERVER_ERROR),
    (Answer(status=502, error="<html>Bad Gateway</html>"), F.SERVER_ERROR),
    (refused(404, "not_found_error", "model: nothing"), F.MODEL_MISSING),
    (refused(400, "invalid_request_error", "messages: wrong"), F.INVALID_REQUEST),
    (refused(422, "", "wrong"), F.INVALID_REQUEST),
    (refused(413, "request_too_large", "Request exceeds the maximum size"), F.CONTEXT_OVERFLOW),
    (refused(400, "invalid_request_error", "prompt is too long: 208310 tokens > 200000 maximum"), F.CONTEXT_OVERFLOW),
    (refused(307, "", "elsewhere", Location="http://127.0.0.1:1/"), F.INVALID_REQUEST),
]
ANSWER = Answer(blocks=[text("I look at it."), call("shell", {"command": "ls"}, "toolu_1")])


@both
@pytest.mark.parametrize(("answer", "expected"), FAILURES, ids=[f"{a.status}-{f}" for a, f in FAILURES])
async def test_every_refusal_has_its_class(kind: str, answer: Answer, expected: FailureClass) -> None:
    """One request went out: the SDK's own retries are off."""
    with serving(in_order(answer)) as fake:
        async with connected(kind, fake) as model:
            failure = await failure_of(model)
        assert (failure.failure, len(fake.requests)) == (expected, 1), str(failure)
        assert not failure.charged
        assert str(failure).startswith(f"{model.provider}/{model.name}: ")


@both
async def test_a_key_that_the_server_echoes_is_masked(kind: str) -> None:
    wrong = f"{KEY}-wrong"
    with serving(in_order(ANSWER)) as fake:
        async with connected(kind, fake, key=wrong) as model:
            failure = await failure_of(model)
    assert failure.failure is F.AUTH
    assert "invalid x-api-key: [key] (401" in str(failure)


@both
async def test_a_turn_is_whole_and_its_text_comes_in_pieces(kind: str) -> None:
    pieces: list[str] = []
    with serving(in_order(ANSWER)) as fake:
        async with connected(kind, fake) as model:
            turn = await model.infer(request(), pieces.append)
        assert fake.problems == []
    assert turn.content == [
        {"type": "text", "text": "I look at it."},
        {"type": "tool_use", "id": "toolu_1", "name": "shell", "input": {"command": "ls"}},
    ]
    assert (turn.stop_reason, turn.usage) == ("tool_use", {"input_tokens": 100, "output_tokens": 20})
    assert len(pieces) > 1
    assert "".join(pieces) == "I look at it."


@both
@pytest.mark.parametrize(
    ("stop", "expected"), [("end_turn", "end_turn"), ("max_tokens", "length"), ("refusal", "refusal")]
)
async def test_why_it_stopped(kind: str, stop: str, expected: str) -> None:
    with serving(in_order(Answer(blocks=[text("x")], stop=stop))) as fake:
        async with connected(kind, fake) as model:
            assert (await model.infer(request())).stop_reason == expected


@both
@pytest.mark.parametrize("written", ['{"command": "ls', "[1]", '"ls"', "{'command': 'ls'}"])
async def test_arguments_that_are_no_object_are_kept_as_text(kind: str, written: str) -> None:
    with serving(in_order(Answer(blocks=[call("shell", written)]))) as fake:
        async with connected(kind, fake) as model:
            assert (await model.infer(request())).content[0]["input"] == written


@both
async def test_half_of_an_emoji_in_arguments_is_no_reason_to_refuse_them(kind: str) -> None:
    with serving(in_order(Answer(blocks=[call("shell", '{"command": "\\ud83c"}')]))) as fake:
        async with connected(kind, fake) as model:
            assert (await model.infer(request())).content[0]["input"] == {"command": "\ud83c"}


@both
@pytest.mark.parametrize("how", ["cut_after", "end_after"])
@pytest.mark.parametrize("events", [0, 1, 2, 4])
async def test_half_a_stream_is_never_returned(kind: str, how: str, events: int) -> None:
    broken: dict[str, Any] = {how: events}
    with serving(in_order(Answer(blocks=ANSWER.blocks, **broken))) as fake:
        async with connected(kind, fake) as model:
            failure = await failure_of(model)
    assert (failure.failure, failure.charged) == (F.NETWORK, True)


@both
@pytest.mark.parametrize("events", [0, 2])
async def test_silence_is_a_failure_but_the_length_of_an_answer_is_not(kind: str, events: int) -> None:
    with serving(in_order(Answer(blocks=ANSWER.blocks, stall_after=events))) as fake:
        async with connected(kind, fake, inactivity_s=0.1) as model:
            failure = await failure_of(model)
        assert fake.stalled.wait(30)
    assert (failure.failure, failure.charged) == (F.NETWORK, True)


@both
async def test_a_server_that_is_not_there_is_the_network(kind: str) -> None:
    with serving(in_order(ANSWER)) as fake:
        pass
    async with connected(kind, fake) as model:
        failure = await failure_of(model)
    assert (failure.failure, failure.charged) == (F.NETWORK, False)
    assert "refused" in str(failure) or "failed" in str(failure)


@both
async def test_what_is_no_answer_at_all_is_the_server_s_error(kind: str) -> None:
    odd: list[Any] = [{"type": "content_block_delta", "choices": [5]}]
    with serving(in_order(Answer(events=odd))) as fake:
        async with connected(kind, fake) as model:
            assert (await failure_of(model)).failure is F.SERVER_ERROR


@both
async def test_cancelling_drops_the_request_and_frees_its_place(kind: str) -> None:
    answers = in_order(Answer(blocks=ANSWER.blocks, stall_after=3), ANSWER)
    with serving(answers) as fake:
        async with connected(kind, fake, concurrency=1) as model, anyio.create_task_group() as tasks:
            tasks.start_soon(model.infer, request())
            await anyio.to_thread.run_sync(fake.stalled.wait)
            tasks.cancel_scope.cancel()
        async with connected(kind, fake, concurrency=1) as model:
            assert (await model.infer(request())).stop_reason == "tool_use"


@both
async def test_no_more_requests_are_out_than_allowed(kind: str) -> None:
    with serving(in_order(Answer(blocks=ANSWER.blocks, stall_after=1))) as fake:
        async with connected(kind, fake, concurrency=3) as model, anyio.create_task_group() as tasks:
            for _ in range(12):
                tasks.start_soon(model.infer, request())
            await eventually(lambda: fake.most_at_once == 3)
            fake.go_on.set()
        assert (len(fake.requests), fake.most_at_once) == (12, 3)


@both
async def test_all_runs_share_one_connection(kind: str) -> None:
    with serving(in_order(ANSWER)) as fake:
        async with connected(kind, fake) as model:
            clients = {id(await model._connection.client()) for _ in range(3)}
    assert len(clients) == 1


@both
async def test_after_a_rate_limit_nothing_is_sent_until_its_time(kind: str) -> None:
    """The wait is told to every run, so that each journals it and none asks in between."""
    limited = refused(429, "rate_limit_error", "slowly", Retry_After="30")
    with serving(in_order(limited, ANSWER)) as fake:
        async with connected(kind, fake) as model:
            first, second = await failure_of(model), await failure_of(model)
            assert (first.failure, first.retry_after_s) == (F.RATE_LIMITED, 30.0)
            assert second.failure is F.RATE_LIMITED
            assert second.retry_after_s == pytest.approx(30.0)
            assert len(fake.requests) == 1
            clock = model._connection.clock
            assert isinstance(clock, FakeClock)
            clock.advance(31)
            await model.infer(request())


@both
async def test_an_answer_costs_what_its_price_says_and_an_unknown_model_nothing(kind: str) -> None:
    usage = {"input": 1000, "output": 100, "read": 0}
    with serving(in_order(Answer(blocks=[text("x")], usage=usage))) as fake:
        async with connected(kind, fake, Card(price=Price(input=3.0, output=15.0))) as model:
            assert (await model.infer(request())).cost_usd == pytest.approx(0.0045)
            estimate = model.estimate(request())
            assert estimate["tokens"] > 4000
            assert estimate["cost_usd"] > 0.06
        async with connected(kind, fake) as model:
            assert (await model.infer(request())).cost_usd == 0.0


@both
async def test_an_answer_leaves_room_for_its_prompt(kind: str) -> None:
    """P6: prompt and answer fit the window."""
    said = {"role": "user", "content": [text("words " * 500)]}
    with serving(in_order(ANSWER), window=4000) as fake:
        async with connected(kind, fake, Card(window_tokens=4000), max_output_tokens=3900) as model:
            await model.infer(request(said))
        assert fake.problems == []


@both
async def test_a_whole_conversation_breaks_no_rule(kind: str) -> None:
    reasoning = thinking("Hm.\n", "c2ln+/==" if kind == "anthropic" else "reasoning_content")
    asked = {"role": "assistant", "content": [reasoning, text("é"), *ANSWER.blocks[1:]]}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "[error] no", "is_error": True}
    answered = {"role": "user", "content": [result, text("And now?")]}
    with serving(in_order(ANSWER)) as fake:
        fake.issued[reasoning["signature"]] = reasoning["thinking"]
        async with connected(kind, fake) as model:
            await model.infer(request(TASK, asked, answered))
            await model.infer(request(TASK, tools=(), system=" "))
        assert fake.problems == []
        assert [headers.get("authorization") for headers in (r.headers for r in fake.requests)] == ["REDACTED"] * 2


@both
async def test_the_fake_server_is_strict(kind: str) -> None:
    """A body that breaks a rule is refused with its name: what the other tests rest on."""
    dangling = {"role": "assistant", "content": list(ANSWER.blocks)}
    blank = {"role": "user", "content": [text("x"), text(" ")]}
    for messages in ([TASK, dangling, TASK], [TASK, {"role": "assistant", "content": [text("")]}, TASK], [blank]):
        with serving(in_turn(ANSWER)) as fake, contextlib.suppress(IndexError):
            async with connected(kind, fake) as model:
                if kind == "openai" and messages == [blank]:
                    continue  # its text is joined to one that is not blank
                assert (await failure_of(model, request(*messages))).failure is F.INVALID_REQUEST
            assert fake.problems
