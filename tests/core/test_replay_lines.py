"""Replay of odd lines, newer versions, blobs and checkpoints."""

from typing import Any

import pytest

from onward.core.fold import NewerRecord
from onward.core.records import FOLD_VERSION
from onward.core.replay import Replay, Replayer
from onward.core.state import RunState
from tests.core import journals as j
from tests.core.journals import Journal, replay
from tests.core.test_replay import conversation, texts


@pytest.mark.parametrize("blank", [b"\n", b"\r\n", b" \t\n", b"\n\n\n"])
@pytest.mark.parametrize("at", [0, 1, 3, 4])
def test_blank_lines_are_ignored(blank: bytes, at: int) -> None:
    """A blank line is no damage, and one at the end stays."""
    journal = conversation("one", "two")
    journal.lines.insert(at, blank)
    replayed = replay(journal)

    assert replayed.state == replay(conversation("one", "two")).state
    assert (replayed.torn, replayed.end) == (None, len(journal.bytes))


def test_a_byte_order_mark_is_no_damage() -> None:
    """What an editor put before the first line does not cost the run."""
    journal = conversation("one")
    replayed = replay(b"\xef\xbb\xbf" + journal.bytes)

    assert replayed.state == replay(journal).state
    assert replayed.end == len(journal.bytes) + 3


def test_lines_written_by_hand_are_used_and_counted() -> None:
    """Also where an editor ends lines with a carriage return."""
    by_hand = (
        b'{"seq": 4, "type": "MessageAdded", "message_id": "m", "source": "human", "content": "hi", "by": "me"}\r\n'
    )
    replayed = replay(conversation("one").put(by_hand))

    assert (texts(replayed), replayed.state.hand_written) == ([j.TASK, "one", "hi"], 1)
    assert (replayed.state.damage, replayed.torn) == ([], None)


def test_a_file_that_an_editor_gave_other_line_ends_is_not_read_as_something_else() -> None:
    """The checksums no longer hold: every such line is bad, none is believed."""
    journal = conversation("one")
    damaged = journal.lines[0] + b"".join(text.replace(b"\n", b"\r\n") for text in journal.lines[1:])
    replayed = replay(damaged)

    assert (texts(replayed), replayed.end, bool(replayed.torn)) == ([j.TASK], len(journal.lines[0]), True)


def test_line_separators_in_text_do_not_end_lines() -> None:
    """Only a newline does."""
    odd = "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg"

    assert texts(replay(conversation(odd))) == [j.TASK, odd]


def test_an_unknown_type_is_passed_over() -> None:
    """Old code reads on behind what it does not know."""
    journal = conversation("one").add({"type": "x_future", "content": [{}]}, j.said("two"))
    replayed = replay(journal)

    assert (texts(replayed), replayed.state.damage, replayed.state.seq) == ([j.TASK, "one", "two"], [], 5)


@pytest.mark.parametrize(
    "journal",
    [
        conversation("one").add({"type": "GrantRevoked", "must": True}, j.said("two")),
        Journal().add(j.started(schema=2)),
        Journal().add({"type": "RunStarted", "schema": 2, "of": "tomorrow"}, j.claimed()),
    ],
)
def test_what_a_newer_version_must_not_lose_stops_the_reading(journal: Journal) -> None:
    """The run is newer than this Onward; nothing is made of it."""
    with pytest.raises(NewerRecord):
        replay(journal)


def test_a_newer_record_in_a_torn_tail_does_not_count() -> None:
    """It was never durable, and is set aside with the tail."""
    journal = conversation("one")
    tail = b"\x00\n" + j.line({"type": "GrantRevoked", "must": True}, seq=5, dur=3)

    assert replay(journal.bytes + tail).state == replay(journal).state


@pytest.mark.parametrize(
    "bad",
    [
        j.said("x") | {"content": None},
        {"type": "AssistantTurn"},
        j.turn(1, j.text("x"), seen=1) | {"usage": []},
        j.batch(1, "../x"),
        j.handed_over("t9c9"),
        j.ended("bogus"),
        j.started(),
        j.turn(2**80, j.text("x"), seen=1),
    ],
)
def test_a_record_that_cannot_be_folded_is_damage_and_the_rest_is_used(bad: dict[str, Any]) -> None:
    """An ill-typed member costs its record only."""
    journal = conversation("one").add(bad, j.said("two"))
    replayed = replay(journal)

    assert (texts(replayed), replayed.state.seq, replayed.torn) == ([j.TASK, "one", "two"], 5, None)
    assert [damage.offset for damage in replayed.state.damage] == [journal.offsets[3]]


@pytest.mark.parametrize("fallback", [None, 5, "x", [5], [{}], {"a": 1}])
def test_an_ill_typed_agent_definition_does_not_stop_the_reading(fallback: Any) -> None:
    """What a definition names in another form is not used, and a failed request can still be folded."""
    journal = Journal().add(j.started(agent={"fallback": fallback}), j.claimed(), j.inferring(), j.failed(j.TS))

    assert (replay(journal).state.failures, replay(journal).state.damage) == (1, [])
    assert len(replay(journal).state.chain) == 1


@pytest.mark.parametrize(
    "odd",
    [
        b'{"seq":4,"type":"X","x":' + b"[" * 1000 + b"]" * 1000 + b"}\n",
        b'{"seq":4,"type":"AssistantTurn","content":[{"a":' + b"[" * 1000 + b"]" * 1000 + b"}]}\n",
        b'{"seq":4,"type":"X","x":' + b"[" * 200_000 + b"\n",
        b'{"seq":4,"type":"X","dur":"x"}\n',
        b'{"seq":4,"type":"X","dur":99}\n',
        b'{"seq":123456789012345678901234567890,"type":"X"}\n',
    ],
)
def test_lines_that_would_break_a_careless_reader_are_bad_lines(odd: bytes) -> None:
    """Depth, digits and ill-typed frames are damage like any other."""
    replayed = replay(conversation("one").skip().put(odd).add(j.said("two")))

    assert texts(replayed) == [j.TASK, "one", "two"]
    assert replayed.state.damage


def test_a_huge_seq_costs_no_memory_and_no_record() -> None:
    """A mistyped seq in a line by hand makes a gap; what follows is used in file order."""
    journal = conversation("one").put(b'{"seq":9007199254740991,"type":"X"}\n').add(j.said("two"))

    assert texts(replay(journal)) == [j.TASK, "one", "two"]


def blob_journal() -> tuple[Journal, str, bytes]:
    record, sha, body = j.in_blob(j.said("large"))
    return conversation("one").add(record, j.said("two")), sha, body


def test_a_record_in_a_blob_is_read() -> None:
    """The line names the blob, whose members are the record's."""
    journal, sha, body = blob_journal()

    assert texts(replay(journal, {sha: body})) == [j.TASK, "one", "large", "two"]


@pytest.mark.parametrize("body", [None, b"", b"{", b"[]", b'{"type":"RunEnded","status":"failed"}', b"[" * 100_000])
def test_a_missing_or_wrong_blob_is_as_a_bad_line(body: bytes | None) -> None:
    """In the middle of the file it is a gap, at its end a torn tail."""
    journal, sha, _ = blob_journal()
    blobs = {} if body is None else {sha: body}
    at_the_end = b"".join(journal.lines[:-1])

    assert texts(replay(journal, blobs)) == [j.TASK, "one", "two"]
    assert replay(journal, blobs).state.damage
    assert (replay(at_the_end, blobs).end, replay(at_the_end, blobs).state.damage) == (journal.offsets[3], [])


@pytest.mark.parametrize("name", [5, "", "../../etc/passwd", None])
def test_a_blob_needs_a_name(name: object) -> None:
    """Whatever stands there, nothing is raised."""
    record = {**j.said("three"), "blob": name}
    replayed = replay(conversation("one").add(record, j.said("two")))

    assert texts(replayed)[-1] == "two"


OPEN = [j.turn(1, j.use("p1"), seen=2), j.batch(1, "t1c1"), j.handed_over("t1c1"), j.said("x")]
BEHIND = [j.done("t1c1"), j.turn(2, j.text("fine"), seen=8), j.said("é")]


def with_checkpoint(version: int = FOLD_VERSION) -> tuple[Journal, int]:
    """Return a journal with the Checkpoint of what was said before it, and where that stands."""
    journal = Journal().add(j.started(), j.claimed(), *OPEN)
    offset = len(journal.bytes)
    return journal.add(j.checkpoint(replay(journal).state, version), *BEHIND), offset


def no_blob(sha: str) -> bytes | None:
    return None


def from_checkpoint(journal: Journal, offset: int) -> Replay | None:
    line = journal.bytes[offset:].partition(b"\n")[0] + b"\n"
    replayer = Replayer.from_checkpoint(offset, line, no_blob)
    return None if replayer is None else j.feed(replayer, journal.bytes[replayer.offset :])


@pytest.mark.parametrize("behind", range(len(BEHIND) + 1))
def test_a_start_at_a_checkpoint_gives_the_same_as_one_at_the_beginning(behind: int) -> None:
    """State, end and checkpoint offset are equal, whatever follows."""
    journal, offset = with_checkpoint()
    del journal.lines[7 + behind :]

    assert from_checkpoint(journal, offset) == replay(journal)
    assert replay(journal).checkpoint_offset == offset


def test_a_doubled_checkpoint_is_the_same_from_both_starts() -> None:
    """The identical line is skipped by both."""
    journal, offset = with_checkpoint()
    journal.lines.insert(7, journal.lines[6])

    assert from_checkpoint(journal, offset) == replay(journal)
    assert replay(journal).state.damage == []


def test_a_checkpoint_of_another_fold_is_passed_over() -> None:
    """Another version of the fold reads from the start."""
    journal, offset = with_checkpoint(FOLD_VERSION + 1)

    assert from_checkpoint(journal, offset) is None
    assert replay(journal).checkpoint_offset is None
    assert replay(journal).state.turns == 2


@pytest.mark.parametrize("lost", range(1, 6))
def test_a_checkpoint_heals_what_was_lost_before_it(lost: int) -> None:
    """A gap before a valid Checkpoint costs nothing but a warning: the state is what the Checkpoint holds."""
    journal, _ = with_checkpoint()
    whole = replay(journal).state
    journal.lines[lost] = b"\x00" * 20 + b"\n"
    replayed = replay(journal).state

    assert replayed.damage
    assert not replayed.gap_since_turn
    replayed.damage = []
    assert replayed == whole


def test_a_checkpoint_heals_also_a_gap_that_a_turn_came_after() -> None:
    """A start at the beginning knows as much as a start at the Checkpoint, also what the gap had swallowed."""
    journal = Journal().add(j.started(), j.claimed(), j.said("lost"), j.turn(1, j.text("yes"), seen=3))
    journal.add(j.checkpoint(replay(journal).state))
    journal.lines[2] = b"\x00\n"

    assert texts(replay(journal)) == [j.TASK, "lost", "yes", "Go on."]


@pytest.mark.parametrize(
    "damaged",
    [
        {"state": {}},
        {"state": {"run_id": "x"}},
        {"state": None},
        {"state": {**j.snapshot(RunState()), "run_id": ""}},
        {"state": {**j.snapshot(RunState()), "run_id": "x", "status": "bogus"}},
        {"state": {**j.snapshot(RunState()), "run_id": "x", "conversation": 5}},
        {"state": {**j.snapshot(RunState()), "run_id": "x", "totals": {"bogus": 5}}},
    ],
)
def test_a_checkpoint_that_holds_no_state_is_not_used(damaged: dict[str, Any]) -> None:
    """The reader starts from the beginning, where the journal has everything."""
    journal = conversation("one").add({"type": "Checkpoint", "fold": FOLD_VERSION, **damaged}, j.said("two"))

    assert from_checkpoint(journal, journal.offsets[3]) is None
    assert texts(replay(journal)) == [j.TASK, "one", "two"]


def test_a_checkpoint_line_that_is_cut_is_not_used() -> None:
    """Without its newline it may not be whole."""
    journal, offset = with_checkpoint()
    line = journal.lines[6]

    assert Replayer.from_checkpoint(offset, line[:-1], no_blob) is None
    assert Replayer.from_checkpoint(offset, line[:50] + b"\n", no_blob) is None
    assert Replayer.from_checkpoint(offset, journal.lines[5], no_blob) is None
    assert Replayer.from_checkpoint(offset, b"", no_blob) is None


@pytest.mark.parametrize("moved", [False, True])
def test_a_checkpoint_out_of_order_takes_nothing_back(moved: bool) -> None:
    """An older Checkpoint that stands again behind newer records does not undo them."""
    journal, _ = with_checkpoint()
    old = journal.lines[6] if not moved else journal.lines.pop(6)
    journal.put(old.replace(b"\n", b"") + b"\n").put(b"\x00\n").skip().put(old).add(j.said("newest"))

    assert texts(replay(journal))[-3:] == ["fine", "é", "newest"]
