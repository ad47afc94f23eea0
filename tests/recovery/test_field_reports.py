"""What went wrong elsewhere when runs were resumed, case by case, from the file on the disk to the run's end.

Of each: the run ends, every request is one that providers take, a second daemon changes nothing, and nothing that
stood in the file is gone. Three are whole tests elsewhere: one bad run among twenty (B10, `e2e/test_damage.py`), a full
disk (B11, `e2e/test_full_disk.py`), and journals of 600 MB (B13, `store/test_large.py`).
"""

from pathlib import Path
from typing import Any

import orjson
import pytest
from anyio import to_thread

from onward.recovery import inspect
from onward.testing.strict import check_request
from tests.core import journals as j
from tests.core.journals import Json, text, use
from tests.recovery.runs import put
from tests.recovery.serving import Models, gone_on, serving
from tests.specimens.writing import AGENT, BOOT

START = [j.started(agent=AGENT, workspace="/tmp", model="scripted/specimen"), j.claimed(BOOT)]
MINE = {"provider": "scripted", "model": "specimen"}
GO_ON = [j.said("go on"), j.inferring()]


def asks(number: int, *ids: str, seen: int, say: tuple[Json, ...] = ()) -> list[Json]:
    calls = [f"t{number}c{n}" for n in range(1, len(ids) + 1)]
    turn = j.turn(number, *say, *map(use, ids), seen=seen, **MINE)
    return [turn, j.batch(number, *(j.call(c, p) for c, p in zip(calls, ids, strict=True)))]


def started(*calls: str) -> list[Json]:
    return [j.handed_over(call) for call in calls]


async def ended(top: Path, content: Any, status: str = "completed", turns: tuple[Json, ...] = ()) -> list[Any]:
    """Let a daemon bring the run to this status; returns the first request that its model got."""
    run = put(top / "runs", content)
    before = (run / "journal.jsonl").read_bytes()
    (top / "script").write_bytes(orjson.dumps({"turns": list(turns)}))
    models = Models(top / "script")
    await gone_on(top / "runs", run.name, status, models)
    assert [problem for request in models.requests for problem in check_request(request)] == []
    after = (run / "journal.jsonl").read_bytes()
    await gone_on(top / "runs", run.name, status, models)
    assert (run / "journal.jsonl").read_bytes() == after or status == "parked"
    kept = after + b"".join(path.read_bytes() for path in sorted(run.glob("journal.torn-*")))
    assert all(line in kept for line in before.split(b"\n"))
    return list(models.requests[0]) if models.requests else []


def results(request: list[Any]) -> list[tuple[str, bool, str]]:
    """Every tool result of a request: the call's id, whether it is an error, and what it says."""
    blocks = [block for message in request for block in message["content"] if block["type"] == "tool_result"]
    return [(b["tool_use_id"], b.get("is_error", False), str(b["content"])) for b in blocks]


HOLES = [
    [*asks(1, "a", seen=2), *started("t1c1"), j.said("more"), j.turn(2, text("well"), seen=5, **MINE), *GO_ON],
    [*asks(1, "a", seen=2), *asks(2, "b", seen=2), *started("t2c1"), j.turn(3, text("so"), seen=5, **MINE), *GO_ON],
    [*asks(1, "a", seen=2), *started("t1c1")],
]


@pytest.mark.parametrize("records", HOLES, ids=["middle", "two", "last"])
async def test_b01_an_unanswered_call_anywhere_is_answered_once(records: list[Json], tmp_path: Path) -> None:
    request = await ended(tmp_path, [*START, *records])
    open_ids = ["a", "b"] if len(records) > 7 else ["a"]
    assert [(call, error) for call, error, _ in results(request)] == [(call, True) for call in open_ids]


@pytest.mark.parametrize("late", [False, True])
async def test_b02_of_a_half_finished_round_only_the_open_call_is_closed(late: bool, tmp_path: Path) -> None:
    """Real results are kept, in model order; one that comes after the synthetic one is a note."""
    records = [*asks(1, "a", "b", "c", seen=2), *started("t1c1", "t1c2", "t1c3")]
    records += [j.done("t1c3", "C"), j.done("t1c1", "A")]
    if late:
        records += [j.done("t1c2", "[error] interrupted", "interrupted", "recovery"), j.done("t1c2", "B")]
    request = await ended(tmp_path, [*START, *records])
    assert [(call, error) for call, error, _ in results(request)] == [("a", False), ("b", True), ("c", False)]
    assert [said for _, error, said in results(request) if not error] == ["A", "C"]


async def test_b03_what_was_said_between_a_call_and_its_result_comes_below_it(tmp_path: Path) -> None:
    between = [j.said("steer"), j.said("notice", source="system")]
    request = await ended(tmp_path, [*START, *asks(1, "a", seen=2), *started("t1c1"), *between, j.done("t1c1", "A")])
    kinds = [block.get("text", block["type"]) for block in request[-1]["content"]]
    assert kinds[:3] == ["tool_result", "steer", "notice"]


THINKING = {"type": "thinking", "thinking": "hm", "signature": "sig"}


@pytest.mark.parametrize(
    ("block", "mine", "sent"),
    [
        (THINKING, True, True),
        ({"type": "thinking", "thinking": "cut off"}, True, False),
        (THINKING, False, False),
    ],
    ids=["signed", "unsigned", "foreign"],
)
async def test_b04_reasoning_is_sent_back_as_it_was_signed_or_not_at_all(
    block: Json, mine: bool, sent: bool, tmp_path: Path
) -> None:
    model = str(tmp_path / "script") if mine else "another"
    turn = j.turn(1, block, text("I call."), use("a"), seen=2, provider="scripted", model=model)
    request = await ended(tmp_path, [*START, turn, j.batch(1, j.call("t1c1", "a")), *started("t1c1")])
    assert (block in request[1]["content"]) is sent


async def test_b05_what_no_provider_takes_is_never_sent(tmp_path: Path) -> None:
    """Blank blocks, a turn of reasoning alone, a blank result, arguments that are no object."""
    blank = [text(""), text("\n\n"), {"type": "thinking", "thinking": "x"}]
    broken = j.call("t2c1", "b", arguments='{"cmd": "ls')
    records = [
        *asks(1, "a", seen=2, say=(text(""), text(" \n"))), *started("t1c1"), j.done("t1c1", ""),
        j.turn(2, *blank, use("b"), seen=5, **MINE), j.batch(2, broken), j.done("t2c1", "no JSON", "error"),
        j.turn(3, {"type": "thinking", "thinking": "only"}, seen=8, stop_reason="max_tokens", **MINE), *GO_ON,
    ]  # fmt: skip
    request = await ended(tmp_path, [*START, *records])
    assert results(request)[0][2] == "(no output)"


LONG = "é🍕" * 30_000


@pytest.mark.parametrize("cut", [1, 2, 3, 5, 100, 150_000, 199_000])
async def test_b07_a_torn_record_of_any_length_is_set_aside_before_the_next_one_is_written(
    cut: int, tmp_path: Path
) -> None:
    """Also in the middle of a character, and of a record of 200 KB; one that lacks only its newline is kept."""
    whole = j.Journal().add(*START, *GO_ON, j.said(LONG))
    request = await ended(tmp_path, whole.bytes[:-cut])
    assert (LONG in orjson.dumps(request).decode()) == (cut == 1)
    assert len(list((tmp_path / "runs" / "worker-1").glob("journal.torn-*"))) == (cut > 1)


def three_thousand() -> j.Journal:
    many = j.Journal().add(*START)
    for number in range(1, 1000):
        many.add(*asks(number, "a", seen=many.seq), j.done(f"t{number}c1", f"result {number}"))
    return many


@pytest.mark.parametrize("hole", [b"\x00" * 500 + b"\n", b'{"crc":"0000\n'])
async def test_b08_a_hole_in_the_middle_hides_nothing_behind_it_and_is_shown(hole: bytes, tmp_path: Path) -> None:
    """With zeros at the end, an empty index and a stale lock, all at once."""
    journal = three_thousand()
    journal.lines[1500] = hole
    journal.put(b"\x00" * 300)
    run = put(tmp_path / "runs", journal)
    (run / "meta.json").write_bytes(b"")
    (tmp_path / "runs" / ".lock").write_bytes(b'{"host":"x","pid":1,"start_ticks":1,"boot_id":"b"}')
    found = await to_thread.run_sync(inspect, run)
    assert (found.reason, len(found.damage) > 0, found.torn is not None) == ("interrupted", True, True)
    (tmp_path / "script").write_bytes(b'{"turns":[]}')
    models = Models(tmp_path / "script")
    await gone_on(tmp_path / "runs", "worker-1", "completed", models)
    assert check_request(models.requests[0]) == []
    said = orjson.dumps(models.requests[0]).decode()
    assert all(f"result {number}" in said for number in (1, 400, 600, 999))
    async with serving(tmp_path / "runs", models) as supervisor:
        shown = await supervisor.get_run("worker-1")
    offset = journal.offsets[1500]
    assert offset in [place["offset"] for place in shown["damage"]]
    assert hole in (run / "journal.jsonl").read_bytes()


async def test_b08_a_hole_that_may_hide_an_effect_asks_a_human_first(tmp_path: Path) -> None:
    """After the newest turn: nothing is requested, and the question says where."""
    journal = j.Journal().add(*START, *asks(1, "a", seen=2)).skip().put(b"\x00" * 99 + b"\n").add(j.said("x"))
    assert await ended(tmp_path, journal, "parked") == []
    async with serving(tmp_path / "runs", Models(tmp_path / "script")) as supervisor:
        (question,) = await supervisor.interactions("worker-1")
        shown = await supervisor.get_run("worker-1")
    assert question["kind"] == "damage"
    assert shown["damage"][0]["offset"] == journal.offsets[4]


@pytest.mark.parametrize("meta", [b"\x00" * 700, b"", None])
async def test_b09_an_index_of_zeros_is_made_again_from_the_journal(meta: bytes | None, tmp_path: Path) -> None:
    run = put(tmp_path / "runs", [*START, *GO_ON])
    if meta is not None:
        (run / "meta.json").write_bytes(meta)
    (run / ".meta.json.0123456789ab.tmp").write_bytes(b"half")
    (tmp_path / "script").write_bytes(b'{"turns":[]}')
    await gone_on(tmp_path / "runs", "worker-1", "completed", Models(tmp_path / "script"))
    assert orjson.loads((run / "meta.json").read_bytes())["status"] == "completed"
    assert list(run.glob(".*.tmp")) == []


async def test_b12_bytes_that_are_no_text_reach_journal_and_provider_as_text(tmp_path: Path) -> None:
    """Output of a real command, and arguments of a model, with halves of characters, NUL and line separators."""
    printf = r"printf '\262\377\376\360\237\000\342\200\250'; printf '\360\237'"
    calls = [
        {"name": "shell", "arguments": {"command": printf}},
        {"name": "shell", "arguments": '{"command": "echo \\ud83c"}'},
    ]
    await ended(tmp_path, [*START, *GO_ON], turns=({"calls": calls},))
    data = (tmp_path / "runs" / "worker-1" / "journal.jsonl").read_bytes()
    assert "\ufffd" in data.decode()
    assert b"\\u0000" not in data


async def test_b12_a_lone_half_that_stands_in_a_journal_costs_its_line_only(tmp_path: Path) -> None:
    half = j.sealed('"seq":3,"dur":2,"type":"MessageAdded","content":"\\ud83c"}') + b"\n"
    journal = j.Journal().add(*START).skip().put(half).add(*asks(1, "a", seen=3), *started("t1c1"))
    request = await ended(tmp_path, journal)
    assert len(results(request)) == 1


async def test_b14_what_a_newer_version_wrote_is_kept_or_left_alone(tmp_path: Path) -> None:
    """Harmless: passed over and kept. Essential: this run alone is parked, not a byte of it is changed."""
    await ended(tmp_path / "a", [*START, {"type": "x_future", "a": [1]}, *GO_ON])
    essential = [*START, {"type": "x_future", "must": True}, *GO_ON]
    assert await ended(tmp_path / "b", essential, "parked") == []
    run = tmp_path / "b" / "runs" / "worker-1"
    assert (run / "journal.jsonl").read_bytes() == j.Journal().add(*essential).bytes
    assert (await to_thread.run_sync(inspect, run)).reason == "newer"


async def test_b15_a_doubled_seq_is_used_in_file_order_and_reported(tmp_path: Path) -> None:
    """Two writers once: both lines count, and it is shown; two daemons cannot (`e2e/test_daemons.py`)."""
    journal = j.Journal().add(*START, j.said("one"))
    journal.put(j.line(j.said("two"), seq=3, dur=2)).add(*asks(1, "a", seen=4), *started("t1c1"))
    request = orjson.dumps(await ended(tmp_path, journal)).decode()
    assert request.index("one") < request.index("two")
    found = await to_thread.run_sync(inspect, tmp_path / "runs" / "worker-1")
    assert "twice" in found.damage[0].what
