"""The provider view: ids that tie calls to results, and turns that lost their batch."""

import pytest

from onward.core.state import RunState
from onward.testing.strict import check_request
from tests.core import journals as j
from tests.core.journals import Json, text, use
from tests.core.test_conversation import request_of, results, shape


def call_ids(*records: Json) -> list[str]:
    """Return the ids of all calls in the request, in their order."""
    messages = request_of(*records)
    return [block["id"] for message in messages for block in message["content"] if block["type"] == "tool_use"]


def asked(number: int, *ids: str) -> list[Json]:
    calls = [j.call(f"t{number}c{n}", known) for n, known in enumerate(ids, 1)]
    return [j.turn(number, *(use(known) for known in ids), seen=2), j.batch(number, *calls)]


def test_the_provider_id_is_kept_where_it_is_fit() -> None:
    """The provider sees the id that it gave, so that its cache holds."""
    assert call_ids(*asked(1, "toolu_01A-b", "call_2")) == ["toolu_01A-b", "call_2"]


ODD_IDS = {
    "empty": "",
    "blank": " ",
    "path": "../../x",
    "space": "a b",
    "non-ASCII": "é",
    "long": "x" * 65,
    "colon": "call:1",
    "newline": "a\n",
}


@pytest.mark.parametrize("odd", ODD_IDS.values(), ids=ODD_IDS.keys())
def test_an_odd_id_is_replaced_by_our_own(odd: str) -> None:
    """Empty ids and characters that other providers refuse do not reach the request."""
    assert call_ids(*asked(1, odd)) == ["t1c1"]


def test_reused_ids_stay_unique_in_the_request() -> None:
    """Providers reuse ids: in one turn, and from turn to turn."""
    records = [*asked(1, "call_1", "call_1"), *asked(2, "call_1"), *asked(3, "call_1")]

    assert call_ids(*records) == ["call_1", "t1c2", "t2c1", "t3c1"]


def test_an_id_in_the_form_of_ours_takes_no_place_from_ours() -> None:
    """A provider that says `t2c1` in turn 1 does not collide with call t2c1."""
    ids = call_ids(*asked(1, "t2c1"), *asked(2, ""), *asked(3, "t1c1"))

    assert len(set(ids)) == 3


def test_an_id_in_the_request_never_changes() -> None:
    """What was sent once is sent again in the same words, so that prompt caches hold."""
    first = asked(1, "call_1", "", "call_1")
    later = [*first, j.done("t1c1"), j.done("t1c2"), j.done("t1c3"), *asked(2, "call_1"), j.said("x")]

    assert call_ids(*later)[:3] == call_ids(*first)
    assert request_of(*later)[1] == request_of(*first)[1]


def test_a_result_goes_to_its_own_call_though_ids_are_equal() -> None:
    """Calls are told apart by our id, never by the provider's."""
    records = [*asked(1, "x", "x"), j.done("t1c2", "second"), *asked(2, "x"), j.done("t2c1", "third")]
    answered = results(request_of(*records))

    assert answered["t1c2"] == ("second", False)
    assert answered["t2c1"] == ("third", False)
    assert answered["x"][1]


def test_a_turn_whose_batch_is_missing_started_nothing() -> None:
    """Torn between the turn and its batch: all its calls are answered as not started."""
    answered = results(request_of(j.turn(1, use("a"), use("b"), seen=2)))

    assert list(answered) == ["a", "b"]
    assert all(answer.startswith("[error] not started") and is_error for answer, is_error in answered.values())


def test_beside_damage_a_missing_batch_proves_nothing() -> None:
    """The batch may lie in the gap and its calls may have run: unknown, not `not started`."""
    journal = j.Journal().add(j.started(), j.claimed(), j.turn(1, use("a"), seen=2)).skip().add(j.said("x"))
    messages = j.replay(journal).state.conversation.request()

    assert check_request(messages) == []
    assert results(messages)["a"][0].startswith("[error] interrupted")


def test_a_batch_without_its_turn_is_sent_with_its_calls() -> None:
    """The turn's words are lost, its effects are not hidden from the model."""
    batch = [j.batch(1, j.call("t1c1", "a"), j.call("t1c2", "b")), j.done("t1c1", "real")]
    messages = request_of(*batch)

    assert shape(messages)[1:] == ["assistant: <a> <b>", "user: <a> <b>"]
    assert results(messages)["a"] == ("real", False)


@pytest.mark.parametrize(
    ("in_content", "in_batch", "view"),
    [
        (["a", "b", "c"], ["a", "b"], ["a", "b"]),
        (["a"], ["a", "b"], ["a", "b"]),
        ([], ["a"], ["a"]),
        (["a", "b"], [], ["a", "b"]),
    ],
)
def test_where_content_and_batch_differ_every_call_has_one_answer(
    in_content: list[str], in_batch: list[str], view: list[str]
) -> None:
    """What could start is what the batch says; every call that is shown is answered."""
    turn = j.turn(1, text("x"), *(use(known) for known in in_content), seen=2)
    batch = j.batch(1, *(j.call(f"t1c{n}", known) for n, known in enumerate(in_batch, 1)))
    messages = request_of(turn, batch)

    assert list(results(messages)) == view


@pytest.mark.parametrize(
    "block",
    [
        {"type": "tool_use"},
        {"type": "tool_use", "id": None, "name": None, "input": None},
        {"type": "tool_use", "id": 5, "name": 5, "input": [1]},
        {"type": "tool_use", "id": {}, "name": "", "input": "x"},
    ],
)
def test_a_call_without_its_members_is_still_answered(block: Json) -> None:
    """A block that a provider would not take is sent in a form that it takes."""
    assert len(results(request_of(j.turn(1, block, seen=2)))) == 1


def test_a_turn_that_stands_twice_in_the_journal_has_unique_ids() -> None:
    """Two writers: the same calls twice, each with its answer."""
    ids = call_ids(*asked(1, "a", "t1c2"), *asked(1, "a", "t1c2"))

    assert len(set(ids)) == 4


def test_a_conversation_from_a_checkpoint_keeps_its_ids() -> None:
    """Ids that are taken stay taken after a restart."""
    state = j.fold_all([j.started(), j.claimed(), *asked(1, "x"), *asked(2, "y")])
    again: RunState = j.copied(state)
    for run in (state, again):
        j.fold_all([*asked(3, "x", "y"), j.said("z")], run)

    assert again.conversation.request() == state.conversation.request()
    assert check_request(again.conversation.request()) == []
