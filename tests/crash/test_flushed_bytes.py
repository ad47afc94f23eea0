"""What no crash does, but disks and people do: bytes that were flushed are gone from the journal's end.

No design can make up for them. But where anything shows that records are missing the run waits for a human, and where
nothing does, what is missing of a line is set aside and said; it never goes on in silence with an effect twice.
"""

import json
import os
import random
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.crash.harness import Home
from tests.crash.journals import read_journal
from tests.crash.lives import KEY, die_of, recovers_to_the_same, start
from tests.crash.oracle import bumped, problems_with
from tests.crash.scenario import effects, representative, write_script

POINTS = (
    "call.make.after#3",
    "run.call_ended#3",
    "run.call_ended#9",
    "run.answered#6",
    "run.call_ended#13",
    "remove.before#3",
)
CUTS_A_POINT = 25
LONGEST_CUT = 6000


def cuts() -> list[tuple[str, int]]:
    """The same lengths at every start, most of them short: those at which lines differ."""
    chosen = random.Random(20)
    return [
        (point, length)
        for point in POINTS
        for length in sorted({int(LONGEST_CUT ** chosen.random()) for _ in range(CUTS_A_POINT)})
    ]


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the run directory shows after the cut."""

    torn: bool
    shows_loss: bool
    forgotten: list[str]
    """Effects of calls that the journal does not know as handed over any more."""


@pytest.mark.slow
@pytest.mark.parametrize("zeroed", [False, True], ids=["cut", "zeroed"])
@pytest.mark.parametrize(("point", "length"), cuts())
def test_flushed_bytes_are_gone(home: Home, point: str, length: int, zeroed: bool) -> None:
    script = write_script(home.path, representative())
    die_of(home, script, f"{point}=kill")
    home.end_processes()
    run_dir = home.run_dirs()[0]
    happened = effects(home.path)
    found = damage(run_dir, length, zeroed=zeroed)
    assert start(home, script)
    assert home.rest()
    shown = home.listed()[run_dir.name]

    assert bool(list(run_dir.glob("journal.torn-*"))) == found.torn
    if found.shows_loss:
        assert (shown["status"], shown["needs"]) == ("parked", "damaged")
        assert effects(home.path) == happened
    else:
        assert problems_with(home, {KEY: script}, forgotten=found.forgotten) == []
    assert recovers_to_the_same(home)


def damage(run_dir: Path, length: int, *, zeroed: bool) -> Evidence:
    """Take the last bytes of the journal (never of its first line) and say what is left to show it."""
    path = run_dir / "journal.jsonl"
    data = path.read_bytes()
    known = {call_id: bumped(call) for call_id, call in read_journal(run_dir).calls().items()}
    end = max(len(data) - length, data.index(b"\n") + 1)
    os.truncate(path, end)
    whole = data[:end].rpartition(b"\n")[0] + b"\n"
    if data[end : end + 1] == b"\n" and not zeroed:
        whole = data[: end + 1]  # only a newline is missing: the record is whole
    left = run_dir.parents[1] / "left"
    started, seq = handed_over(run_dir, whole, left)
    if zeroed:
        os.truncate(path, len(data))
    lost_calls = {entry.name for entry in run_dir.glob("calls/*")} - started
    return Evidence(
        torn=len(whole) < (len(data) if zeroed else end),
        shows_loss=bool(lost_calls) or index_seq(run_dir) > seq,
        forgotten=[key for call_id, keys in known.items() if call_id not in started for key in keys],
    )


def handed_over(run_dir: Path, lines: bytes, scratch: Path) -> tuple[set[str], int]:
    """Return the calls that these lines know as handed over, and the seq of the last of them."""
    scratch.mkdir()
    (scratch / "journal.jsonl").write_bytes(lines)
    if (run_dir / "blobs").exists():
        (scratch / "blobs").symlink_to(run_dir / "blobs")
    journal = read_journal(scratch)
    for entry in list(scratch.iterdir()):
        entry.unlink()
    scratch.rmdir()
    assert journal.problems == []
    return {record["call_id"] for record in journal.of("ToolCallStarted")}, len(journal.records)


def index_seq(run_dir: Path) -> int:
    try:
        return int(json.loads((run_dir / "meta.json").read_bytes())["journal"]["seq"])
    except FileNotFoundError:
        return 0
