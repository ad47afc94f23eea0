"""What holds for journals that are damaged anywhere: they are read, judged and sent, or refused by name."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from onward.core.fold import NewerRecord
from onward.core.plan import Policy, Verdict, plan
from onward.core.replay import NotAJournal, Replay
from onward.testing.strict import check_request
from tests.core import journals as j
from tests.core.acting import Daemon, as_line, evidence, histories
from tests.core.journals import Json
from tests.core.test_properties import ENDS, many

MANY_BYTES = st.integers(0, 1 << 20)


def zeroed(data: bytes, at: int, length: int) -> bytes:
    at %= len(data) or 1
    length = min(length % 600, len(data) - at)
    return data[:at] + b"\x00" * length + data[at + length :]


def flipped(data: bytes, at: int, value: int) -> bytes:
    at %= len(data) or 1
    return data[:at] + bytes([value % 256]) + data[at + 1 :]


def dropped(data: bytes, at: int, _: int) -> bytes:
    lines = j.lines_of(data)
    del lines[at % (len(lines) or 1) : at % (len(lines) or 1) + 1]
    return b"".join(lines)


def doubled(data: bytes, at: int, to: int) -> bytes:
    lines = j.lines_of(data) or [b""]
    lines.insert(to % (len(lines) + 1), lines[at % len(lines)])
    return b"".join(lines)


def swapped(data: bytes, at: int, to: int) -> bytes:
    lines = j.lines_of(data) or [b""]
    at, to = at % len(lines), to % len(lines)
    lines[at], lines[to] = lines[to], lines[at]
    return b"".join(lines)


def truncated(data: bytes, at: int, _: int) -> bytes:
    return data[: at % (len(data) + 1)]


damages = st.lists(
    st.tuples(st.sampled_from((zeroed, flipped, dropped, doubled, swapped, truncated)), MANY_BYTES, MANY_BYTES),
    min_size=1,
    max_size=4,
)


def read(data: bytes) -> Replay | None:
    """Read a journal line by line; None where it is refused by name. Statuses change by the table only."""
    replayer = j.replayer()
    before = replayer.state.status
    try:
        for text in j.lines_of(data):
            replayer.feed(text)
            status = replayer.state.status
            assert before == status or before not in ENDS or (before, status) == ("failed", "active")
            before = status
        return replayer.finish()
    except (NotAJournal, NewerRecord) as refusal:
        assert str(refusal)
        return None


def is_usable(replayed: Replay, n: int) -> None:
    """A verdict is found, the request is one that providers take, the state can be kept."""
    state = replayed.state
    assert 0 <= replayed.end <= replayed.size_bytes
    assert check_request(state.conversation.request()) == []
    policy = Policy(boot_id="boot-1")
    assert plan(state, evidence(state, n, policy), policy).verdict in Verdict
    assert j.copied(state) == state


@many
@given(histories(), damages, st.integers(0, 63))
def test_a_damaged_journal_is_used_or_refused(daemon: Daemon, damage: list[Any], n: int) -> None:
    """Zeros, flips, lost, doubled and swapped lines, cuts: whatever is left makes an honest run."""
    data = daemon.data
    for how, at, value in damage:
        data = how(data, at, value)
    if replayed := read(data):
        is_usable(replayed, n)


@many
@given(histories(), st.integers(1, 1000), st.integers(0, 63))
def test_a_lost_line_never_lets_an_effect_run_twice(daemon: Daemon, lost: int, n: int) -> None:
    """Without one durable record the run is parked, or goes on and calls nothing unstarted that was handed over."""
    lines = [as_line(record) for record in daemon.records]
    lost = 1 + lost % len(lines)
    behind = daemon.records[lost:]
    if lost == 1 or not any(record["dur"] >= lost for record in behind):
        return  # the first record, or a torn tail
    state = j.replay(b"".join(lines[: lost - 1] + lines[lost:])).state
    assert state.damage

    policy = Policy(boot_id="boot-1")
    started = {record["call_id"] for record in daemon.records if record["type"] == "ToolCallStarted"}
    for record in plan(state, {}, policy).settlements:
        line = record.to_json()
        assert line.get("outcome") != "not_started" or line["call_id"] not in started


WRONG: list[Any] = [
    None, True, -1, 0, 10**18, 2**70, 1.5, "", " ", "x", "\x00", "completed", [], [1], [[]], {}, {"a": 1}, [{}],
    [{"type": 5}],
]  # fmt: skip
ODD = st.sampled_from(WRONG)


def with_odd_member(record: Json, at: int, value: Any) -> Json:
    """Return the record with one member replaced, also one of a block or call in it. A Checkpoint's state is whole."""
    names = [name for name in record if name not in ("seq", "dur")]
    name = names[at % len(names)]
    inner = record[name]
    if at // 64 % 2 and isinstance(inner, list) and inner and isinstance(inner[0], dict) and inner[0]:
        member = list(inner[0])[at % len(inner[0])]
        return {**record, name: [{**inner[0], member: value}, *inner[1:]]}
    return {**record, name: value}


@many
@given(histories(), st.lists(st.tuples(MANY_BYTES, MANY_BYTES, ODD), min_size=1, max_size=4), st.integers(0, 63))
def test_ill_typed_members_cost_their_record_only(daemon: Daemon, odd: list[tuple[int, int, Any]], n: int) -> None:
    """A line whose checksum is right and whose content is not: damage, never an exception."""
    records = list(daemon.records)
    for which, at, value in odd:
        place = which % len(records)
        records[place] = with_odd_member(records[place], at, value)
    data = b"".join(as_line(record) for record in records)
    if replayed := read(data):
        is_usable(replayed, n)
        is_usable(j.replay(data + b"\x00"), n)


PIECES = [
    b"\n", b"\r\n", b"{", b"}", b'{"crc":"', b'00000000",', b'"seq":1', b'"type":"RunStarted"', b"\x00" * 20,
    b"\xef\xbb\xbf", *(j.line(r, seq=n, dur=0) for n, r in enumerate([j.started(), j.claimed(), j.said("x")], 1)),
]  # fmt: skip
BY_HAND = st.builds(
    lambda seq, name: b'{"seq":%d,"type":"%s"}\n' % (seq, name),
    st.integers(-1, 10**20),
    st.sampled_from([b"RunStarted", b"X"]),
)
FRAGMENTS = st.binary(max_size=60) | st.sampled_from(PIECES) | BY_HAND


@many
@given(st.lists(FRAGMENTS, max_size=12).map(b"".join), st.integers(0, 63))
def test_any_bytes_are_used_or_refused(data: bytes, n: int) -> None:
    """Nothing else than a refusal by name comes out of any file."""
    if replayed := read(data):
        is_usable(replayed, n)
