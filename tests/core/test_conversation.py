"""The provider view: whatever the journal holds, the request is one that providers take, and nothing said is lost."""

from typing import Any

import orjson
import pytest

from onward.core.state import RunState
from onward.testing.strict import check_request
from tests.core import journals as j
from tests.core.journals import Json, text, use

Message = dict[str, Any]
SIGNED = {"type": "thinking", "thinking": "é hm\n", "signature": "EqQB+/=="}


def request_of(*records: Json) -> list[Message]:
    """Return the messages of the next request, which break no rule."""
    messages = j.fold_all([j.started(), j.claimed(), *records]).conversation.request()
    assert check_request(messages) == []
    return messages


def results(messages: list[Message]) -> dict[str, tuple[str, bool]]:
    """Return each result by its id: text, and whether it is an error."""
    return {
        block["tool_use_id"]: (block["content"], block.get("is_error", False))
        for message in messages
        for block in message["content"]
        if block["type"] == "tool_result"
    }


def shape(messages: list[Message]) -> list[str]:
    """Return each message as role and what its blocks are, in a word each."""
    names = {"tool_use": "id", "tool_result": "tool_use_id", "text": "text", "thinking": "thinking"}
    return [
        f"{message['role']}: " + " ".join(f"<{block[names[block['type']]]}>" for block in message["content"])
        for message in messages
    ]


def asked(number: int, *ids: str, seen: int) -> list[Json]:
    """Return a turn that asks for these calls, and its batch."""
    calls = [j.call(f"t{number}c{n}", known) for n, known in enumerate(ids, 1)]
    return [j.turn(number, *(use(known) for known in ids), seen=seen), j.batch(number, *calls)]


def test_a_new_run_says_its_task() -> None:
    """The task is the first message."""
    assert shape(request_of()) == [f"user: <{j.TASK}>"]


def test_results_answer_their_calls_in_model_order() -> None:
    """Results that were journaled in any order stand in the order of the calls."""
    records = [*asked(1, "a", "b", "c", seen=2), j.done("t1c3", "3"), j.done("t1c1", "1"), j.done("t1c2", "2")]

    assert shape(request_of(*records)) == [f"user: <{j.TASK}>", "assistant: <a> <b> <c>", "user: <a> <b> <c>"]
    assert results(request_of(*records)) == {"a": ("1", False), "b": ("2", False), "c": ("3", False)}


def test_a_hole_in_the_middle_is_closed_where_it_is() -> None:
    """B01: a call that was never answered gets one error directly after it, though the conversation went on."""
    messages = request_of(*asked(1, "a", seen=2), j.said("go on"), j.turn(2, text("yes"), seen=5), j.said("more"))

    assert shape(messages) == [
        f"user: <{j.TASK}>", "assistant: <a>", "user: <a> <go on>", "assistant: <yes>", "user: <more>",
    ]  # fmt: skip
    answer, is_error = results(messages)["a"]
    assert answer.startswith("[error] interrupted")
    assert is_error


def test_two_holes_far_apart_are_both_closed() -> None:
    """B01: the whole history is scanned, not only its end."""
    records = asked(1, "a", seen=2)
    seq = 4
    for number in range(2, 50):
        records += [j.turn(number, text(f"turn {number}"), seen=seq), j.said(f"message {number}")]
        seq += 2
    records += asked(50, "b", seen=seq)
    messages = request_of(*records)

    assert [(key, value[1]) for key, value in results(messages).items()] == [("a", True), ("b", True)]


def test_of_a_half_finished_batch_only_the_open_call_is_closed() -> None:
    """B02: the others keep their real results."""
    messages = request_of(*asked(1, "a", "b", "c", seen=2), j.done("t1c3", "3"), j.done("t1c1", "1"))

    assert {key: value[1] for key, value in results(messages).items()} == {"a": False, "b": True, "c": False}
    assert results(messages)["c"] == ("3", False)


def test_a_late_real_result_is_a_note_and_no_second_result() -> None:
    """B02: exactly one result of a call reaches the provider, the first."""
    lost = j.done("t1c1", "[error] interrupted: x", "interrupted", "recovery")
    records = [*asked(1, "a", seen=2), lost, j.done("t1c1", "real, late")]

    assert results(request_of(*records)) == {"a": ("[error] interrupted: x", True)}
    later = [*records, j.turn(2, text("ok"), seen=6), j.done("t1c1", "later still"), j.said("and?")]
    assert results(request_of(*later)) == {"a": ("[error] interrupted: x", True)}


def test_a_message_between_a_call_and_its_result_stands_behind_the_result() -> None:
    """B03: steering and notices come after the results, in the order in which they were said."""
    records = [*asked(1, "a", "b", seen=2), j.done("t1c1"), j.said("first"), j.done("t1c2"), j.said("second")]

    assert shape(request_of(*records))[-1] == "user: <a> <b> <first> <second>"


def test_a_message_that_the_turn_has_not_seen_stands_below_it() -> None:
    """A message that arrived during the request is no part of what the model answered."""
    records = [j.said("seen"), j.inferring(), j.said("unseen"), j.turn(1, text("answer"), seen=3)]

    assert shape(request_of(*records)) == [
        f"user: <{j.TASK}> <seen>", "assistant: <answer>", "user: <unseen>",
    ]  # fmt: skip


def test_an_unseen_message_stands_below_the_results_too() -> None:
    """Where the turn asked for tools, their results come first; later turns do not move it."""
    records = [j.inferring(), j.said("unseen"), *asked(1, "a", seen=2), j.done("t1c1")]
    closed = [*records, j.turn(2, text("ok"), seen=7)]

    assert shape(request_of(*records))[1:] == ["assistant: <a>", "user: <a> <unseen>"]
    assert shape(request_of(*closed))[1:] == [
        "assistant: <a>",
        "user: <a> <unseen>",
        "assistant: <ok>",
        "user: <Go on.>",
    ]


def test_a_message_stays_unseen_over_several_turns() -> None:
    """It moves down until a turn has seen it."""
    records = [j.said("unseen"), j.turn(1, text("one"), seen=2), j.turn(2, text("two"), seen=2)]

    assert shape(request_of(*records))[-2:] == ["assistant: <two>", "user: <unseen>"]


UNSENDABLE = {
    "blank": text(""),
    "white": text("\n\n \t"),
    "text that is none": {"type": "text", "text": None},
    "unsigned": {"type": "thinking", "thinking": "hm"},
    "empty signature": {"type": "thinking", "thinking": "hm", "signature": ""},
    "signature that is none": {"type": "thinking", "thinking": "hm", "signature": 5},
    "blank signature": {"type": "thinking", "thinking": "hm", "signature": " "},
    "thinking that is none": {"type": "thinking", "signature": "x"},
    "redacted without data": {"type": "redacted_thinking"},
    "redacted with a number": {"type": "redacted_thinking", "data": 5},
    "unknown": {"type": "x_future", "x": 1},
    "untyped": {"text": "x"},
}


@pytest.mark.parametrize("block", UNSENDABLE.values(), ids=UNSENDABLE.keys())
def test_a_block_that_no_provider_takes_is_left_out(block: Json) -> None:
    """B04, B05: it stays in the journal, and the rest of its turn is sent; where nothing is left, the turn is not."""
    with_more = request_of(j.turn(1, block, text("x"), use("a"), seen=2))
    alone = request_of(j.turn(1, block, seen=2, stop_reason="max_tokens"))

    assert with_more[1]["content"] == [text("x"), use("a")]
    assert shape(alone) == [f"user: <{j.TASK}>"]


def test_signed_thinking_is_sent_back_as_it_came() -> None:
    """B04: byte for byte and at its place, in the latest turn and in older ones; so is redacted thinking."""
    hidden = {"type": "redacted_thinking", "data": "Zm9v"}
    records = [j.turn(1, SIGNED, hidden, text("x"), use("a"), seen=2), j.batch(1, j.call("t1c1", "a")), j.done("t1c1")]
    closed = [*records, j.turn(2, text("y"), seen=5), j.said("z")]

    for messages in (request_of(*records), request_of(*closed)):
        assert messages[1]["content"] == [SIGNED, hidden, text("x"), use("a")]


def test_a_turn_of_thinking_only_is_not_sent() -> None:
    """B05: a reasoning-only message is refused by providers."""
    messages = request_of(j.turn(1, SIGNED, seen=2, stop_reason="max_tokens"), j.said("and?"))

    assert shape(messages) == [f"user: <{j.TASK}> <and?>"]


@pytest.mark.parametrize("result", ["", " \n", "\t"])
def test_a_blank_result_becomes_a_placeholder(result: str) -> None:
    """B05: the pair must stay."""
    messages = request_of(*asked(1, "a", seen=2), j.done("t1c1", result))

    assert results(messages)["a"][0].strip()


def test_blank_messages_are_not_sent() -> None:
    """B05: an empty message of a human does not poison the run."""
    assert shape(request_of(j.said(""), j.said(" \n"), j.said("x"))) == [f"user: <{j.TASK}> <x>"]


def test_a_run_without_any_text_still_has_a_request() -> None:
    """A blank task and a blank turn leave something to send."""
    state = j.fold_all([j.started(task="  "), j.turn(1, text(" "), seen=1, stop_reason="max_tokens")])

    assert check_request(state.conversation.request()) == []


def test_malformed_arguments_are_sent_as_an_empty_object() -> None:
    """B05: the raw text stays in the journal and in the error result."""
    raw = '{"cmd": "ls'
    turn = j.turn(1, {"type": "tool_use", "id": "a", "name": "shell", "input": raw}, seen=2)
    problem = j.done("t1c1", f"[error] arguments are no JSON object: {raw}", "error")
    messages = request_of(turn, j.batch(1, j.call("t1c1", "a", arguments=raw)), problem)

    assert messages[1]["content"][0]["input"] == {}
    assert raw in results(messages)["a"][0]
    assert request_of(turn)[1]["content"][0]["input"] == {}


def test_a_state_shares_nothing_that_a_request_could_change() -> None:
    """Making the request twice gives the same, and the state is as before."""
    records = [*asked(1, "a", seen=2), j.done("t1c1"), j.said("x"), j.turn(2, text("y"), seen=6), j.said("z")]
    state: RunState = j.fold_all([j.started(), j.claimed(), *records])
    before = j.snapshot(state)

    first = state.conversation.request()
    first.append({"role": "user", "content": []})
    assert state.conversation.request() == first[:-1]
    assert j.snapshot(state) == before


def test_thinking_of_another_provider_or_model_is_left_out_of_what_is_sent() -> None:
    """A signature is good only for the model that made it; the journal keeps the block."""
    mine = {"provider": "anthropic", "model": "claude"}
    records = [
        j.turn(1, SIGNED, use("a"), seen=2, **mine),
        j.batch(1, j.call("t1c1", "a")),
        j.done("t1c1", "1"),
        j.turn(2, {"type": "redacted_thinking", "data": "x"}, use("b"), seen=5, provider="other", model="claude"),
        j.batch(2, j.call("t2c1", "b")),
        j.done("t2c1", "2"),
        j.turn(3, SIGNED, use("c"), seen=8, **mine),
        j.batch(3, j.call("t3c1", "c")),
        j.done("t3c1", "3"),
    ]
    conversation = j.fold_all([j.started(), j.claimed(), *records]).conversation

    def thinking(provider: str | None, model: str | None) -> list[str]:
        messages = conversation.request(provider, model)
        assert check_request(messages) == []
        own = {"thinking": "T", "redacted_thinking": "R", "tool_use": "u"}
        return ["".join(own[block["type"]] for block in m["content"]) for m in messages if m["role"] == "assistant"]

    assert thinking("anthropic", "claude") == ["Tu", "u", "Tu"]
    assert thinking("anthropic", "claude-next") == ["u", "u", "u"]
    assert thinking("other", "claude") == ["u", "Ru", "u"]
    assert thinking(None, None) == ["Tu", "Ru", "Tu"]
    assert conversation.request("anthropic", "claude")[1]["content"][0] is SIGNED


def test_a_checkpoint_remembers_whose_thinking_it_holds() -> None:
    """What is left out does not depend on where the replay began."""
    turns = [j.turn(n, SIGNED, text("x"), seen=n, provider="a", model=str(n)) for n in (1, 2, 3)]
    state = j.fold_all([j.started(), j.claimed(), *turns])
    again = RunState.from_json(orjson.loads(orjson.dumps(state.to_json())))
    for model in "123":
        assert again.conversation.request("a", model) == state.conversation.request("a", model)
