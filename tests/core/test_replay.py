"""Replay of damaged journals: a torn tail is told apart from a gap, and no whole record is lost beside either."""

import pytest

from onward.core.replay import NotAJournal, Replay
from tests.core import journals as j
from tests.core.journals import Journal, replay


def texts(replayed: Replay) -> list[str]:
    """Return what was said, in the order of the request."""
    messages = replayed.state.conversation.request()
    return [block["text"] for message in messages for block in message["content"] if block["type"] == "text"]


def conversation(*said: str) -> Journal:
    return Journal().add(j.started(), j.claimed(), *(j.said(text) for text in said))


LAST_LINES = {
    "é and an emoji": j.said("é then 🍕, then é"),
    "a batch": j.batch(1, "t1c1"),
    "an end": j.ended(),
}


@pytest.mark.parametrize("last", LAST_LINES.values(), ids=LAST_LINES.keys())
def test_a_last_record_cut_at_any_byte_is_ignored(last: j.Json) -> None:
    """Only the torn record is missing; the next append belongs where it began."""
    before = conversation("one")
    whole = replay(before)
    end = before.offsets[-1]
    journal = conversation("one").add(last)
    last_line = journal.lines[-1]

    for cut in range(1, len(last_line) - 1):
        torn = replay(before.bytes + last_line[:cut])
        assert (torn.state, torn.end, torn.add_newline, torn.state.damage) == (whole.state, end, False, [])
        assert torn.torn
        assert torn.size_bytes == end + cut


def test_a_whole_last_record_without_newline_is_used() -> None:
    """The record counts; the newline is to be added before the first append."""
    journal = conversation("one", "é 🍕")
    replayed = replay(journal.bytes[:-1])

    assert replayed.state == replay(journal).state
    assert (replayed.torn, replayed.add_newline, replayed.end) == (None, True, len(journal.bytes) - 1)


def test_a_whole_journal_is_whole() -> None:
    """Nothing is to be cut off, added or reported."""
    journal = conversation("one", "two")
    replayed = replay(journal)

    assert (replayed.torn, replayed.add_newline, replayed.end) == (None, False, len(journal.bytes))
    assert (replayed.size_bytes, replayed.checkpoint_offset) == (len(journal.bytes), None)
    assert (replayed.state.damage, replayed.state.seq, texts(replayed)) == ([], 4, [j.TASK, "one", "two"])


TAILS = {
    "zeros": b"\x00" * 500,
    "zeros and a newline": b"\x00" * 500 + b"\n",
    "garbage": b"\xff\xfe garbage \n more",
    "half a line of 200 KB": j.line(j.said("x" * 200_000), seq=5, dur=4)[:150_000],
    "half a character": j.line(j.said("é"), seq=5, dur=4).partition(b"\xa9")[0],
    "a checksum that is wrong": j.line(j.said("x"), seq=5, dur=4).replace(b'"x"', b'"y"'),
    "an unterminated scalar": b"12",
    "a terminated scalar": b"12\nnull\n",
    "spaces without newline": b"   ",
    "two bad lines": b"{\n{\n",
}


@pytest.mark.parametrize("tail", TAILS.values(), ids=TAILS.keys())
def test_a_bad_tail_is_torn_and_nothing_else_is_lost(tail: bytes) -> None:
    """Whatever stands behind the last durable record is set aside as one piece."""
    journal = conversation("one", "two")
    replayed = replay(journal.bytes + tail)

    assert replayed.state == replay(journal).state
    assert (replayed.end, replayed.add_newline) == (len(journal.bytes), False)
    assert replayed.torn


@pytest.mark.parametrize("hole", [b"\x00" * 300 + b"\n", b"{half\n", b"", b"\xff\n"], ids=repr)
def test_whole_lines_behind_a_hole_that_was_never_durable_are_torn_too(hole: bytes) -> None:
    """Pages written out of order by a power cut: `dur` shows that nothing behind the hole was ever acknowledged."""
    durable = conversation("one", "two")
    seq = durable.seq
    later = Journal(seq=seq, dur=seq).skip().put(hole).add(j.said("three"), j.said("four"))
    replayed = replay(durable.bytes + later.bytes)

    assert replayed.state == replay(durable).state
    assert (replayed.end, replayed.size_bytes) == (len(durable.bytes), len(durable.bytes + later.bytes))
    assert replayed.torn


def test_what_is_not_yet_durable_but_whole_is_used() -> None:
    """A line need not be known durable to count; only what is bad is told apart by `dur`."""
    journal = conversation("one")
    journal.dur = 2
    journal.add(j.said("two"), j.said("three"))

    assert texts(replay(journal)) == [j.TASK, "one", "two", "three"]
    assert replay(journal).torn is None


GAPS = {
    "zeros": b"\x00" * 500 + b"\n",
    "half a record": j.line(j.said("lost"), seq=4, dur=3)[:60] + b"\n",
    "a missing seq": b"",
    "invalid UTF-8": j.line(j.said("lost"), seq=4, dur=3).replace(b"lost", b"l\xffst"),
    "a bare scalar": b"null\n",
}


@pytest.mark.parametrize("hole", GAPS.values(), ids=GAPS.keys())
def test_of_a_gap_both_sides_are_used_and_it_is_recorded(hole: bytes) -> None:
    """Record 4 was durable, so its loss is damage; what stands behind is not lost with it."""
    journal = conversation("one").skip().put(hole).add(j.said("two"), j.said("three"))
    replayed = replay(journal)

    assert texts(replayed) == [j.TASK, "one", "two", "three"]
    assert (replayed.torn, replayed.end) == (None, len(journal.bytes))
    assert {damage.offset for damage in replayed.state.damage} <= {journal.offsets[3], journal.offsets[4]}
    assert replayed.state.damage
    assert replayed.state.gap_since_turn


def test_a_gap_is_healed_by_a_later_turn() -> None:
    """The model went on knowing its content: the damage is a warning only."""
    journal = conversation("one").skip().add(j.said("two"), j.turn(1, j.text("fine"), seen=5))
    replayed = replay(journal)

    assert (replayed.state.gap_since_turn, len(replayed.state.damage)) == (False, 1)


def test_a_gap_after_the_newest_turn_is_not_healed() -> None:
    """What it may hide is asked: the turn before it healed only what was before."""
    journal = conversation("one").add(j.turn(1, j.text("fine"), seen=3)).skip().add(j.said("two"))

    assert replay(journal).state.gap_since_turn


def test_a_gap_and_a_torn_tail_are_told_apart_in_one_file() -> None:
    """A hole before the highest `dur`, and one after it."""
    journal = conversation("one").skip().put(b"\x00" * 50 + b"\n").add(j.said("two"))
    end = len(journal.bytes)
    replayed = replay(journal.bytes + b"\x00" * 50)

    assert texts(replayed) == [j.TASK, "one", "two"]
    assert (replayed.end, bool(replayed.torn), len(replayed.state.damage) > 0) == (end, True, True)


def test_a_durable_mark_far_behind_turns_every_hole_before_it_into_a_gap() -> None:
    """One late line that knows more to be durable is enough for all that was held back."""
    seq, lines = 3, conversation("one")
    for text in ("two", "three", "four"):
        lines.put(b"\x00\n").put(j.line(j.said(text), seq=seq + 2, dur=3))
        seq += 2
    before = replay(lines)
    after = replay(lines.put(j.line(j.said("five"), seq=seq + 1, dur=seq)))

    assert (texts(before), before.state.damage) == ([j.TASK, "one"], [])
    assert texts(after) == [j.TASK, "one", "two", "three", "four", "five"]
    assert (after.torn, len(after.state.damage) >= 3) == (None, True)


@pytest.mark.parametrize("durable_after", [0, 1])
def test_an_identical_doubled_line_is_skipped(durable_after: int) -> None:
    """The same bytes twice say nothing new, wherever the second stands."""
    journal = conversation("one", "two")
    journal.put(journal.lines[2]).put(journal.lines[3])
    if durable_after:
        journal.add(j.said("three"))
    replayed = replay(journal)

    assert (texts(replayed)[:3], replayed.state.damage) == ([j.TASK, "one", "two"], [])
    assert (replayed.torn, replayed.end) == (None, len(journal.bytes))


@pytest.mark.parametrize("followed", [0, 1])
def test_a_doubled_seq_with_another_record_is_used_in_file_order_and_reported(followed: int) -> None:
    """What a second writer acknowledged is not dropped, also when it is the last line of the file."""
    journal = conversation("one", "two")
    journal.put(j.line(j.said("another two"), seq=journal.seq, dur=journal.seq - 1))
    if followed:
        journal.add(j.said("three"))
    replayed = replay(journal)

    assert texts(replayed) == [j.TASK, "one", "two", "another two", "three"][: 4 + followed]
    assert (replayed.torn, replayed.end) == (None, len(journal.bytes))
    assert [damage.offset for damage in replayed.state.damage] == [journal.offsets[4]]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n\n",
        b"\x00" * 100,
        b'{"seq":1,"type":"RunStarted"',
        Journal().add(j.said("x")).bytes,
        Journal().skip().add(j.claimed(), j.said("x")).bytes,
        Journal().put(b"\x00\n").skip().add(j.claimed(), j.said("x")).bytes,
        Journal().add({"type": "GrantRevoked", "must": False}).bytes,
        Journal().add(j.started(task=5)).bytes,
        Journal().add(j.started(task=5), j.claimed()).bytes,
        b"not a journal\n" * 10,
    ],
)
def test_without_its_first_record_a_file_is_no_journal(data: bytes) -> None:
    """It is refused with a reason, so that it can be listed as damaged."""
    with pytest.raises(NotAJournal) as refused:
        replay(data)
    assert str(refused.value)


def test_an_empty_file_and_an_ill_typed_start_have_different_reasons() -> None:
    """The reason names what is wrong."""
    with pytest.raises(NotAJournal, match="empty"):
        replay(b"")
    with pytest.raises(NotAJournal, match="task"):
        replay(Journal().add(j.started(task=5)))
