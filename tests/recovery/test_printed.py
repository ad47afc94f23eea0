"""Commands whose launcher is lost: the model reads the end of what they had printed, and how much it does not read."""

from pathlib import Path

import pytest

from onward.core.plan import Found
from onward.core.state import RunState
from onward.processes import LauncherSpawner
from onward.processes.identity import boot_id
from onward.recovery import inspect
from onward.recovery.evidence import SO_FAR_BYTES, look_at_all
from tests.core import journals as j
from tests.recovery.runs import put
from tests.specimens.writing import Writer

RECORDS = [
    j.started(), j.claimed(), j.turn(1, j.use("t1c1"), seen=2), j.batch(1, "t1c1"), j.handed_over("t1c1"),
]  # fmt: skip


def lost(run: Path, stdout: bytes, stderr: bytes) -> str | None:
    for name, content in Writer("worker-1").identity("t1c1").files.items():
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_bytes(content)
    (run / "calls" / "t1c1" / "stdout").write_bytes(stdout)
    (run / "calls" / "t1c1" / "stderr").write_bytes(stderr)
    state: RunState = j.fold_all(RECORDS)
    found = look_at_all(state, run / "calls", LauncherSpawner(), fence=False)["t1c1"]
    assert found.found is Found.LOST
    return (found.facts or {}).get("output_so_far")


@pytest.mark.parametrize(
    ("stdout", "stderr", "printed"),
    [
        (b"", b"", None),
        (b"step 1\nstep 2\n", b"", "step 1\nstep 2"),
        (b"", b"warning\n", "\n[stderr]\nwarning"),
        (b"step 1\n", b"warning\n", "step 1\n[stderr]\nwarning"),
        ("caf\u00e9\x00\n".encode(), b"\xff", "caf\u00e9\ufffd\n[stderr]\n\ufffd"),
    ],
)
def test_what_it_had_printed_is_told(stdout: bytes, stderr: bytes, printed: str | None, tmp_path: Path) -> None:
    assert lost(put(tmp_path, RECORDS), stdout, stderr) == printed


def test_a_long_output_is_told_from_its_end_and_neither_stream_hides_the_other(tmp_path: Path) -> None:
    told = lost(put(tmp_path, RECORDS), b"o" * 100_000 + b"last", b"e" * 100_000)
    assert told is not None
    assert "last\n[stderr]\n[... 95904 bytes before this left out ...]\nee" in told
    assert told.startswith(f"[... {100_004 - SO_FAR_BYTES} bytes before this left out ...]\noo")
    assert len(told) < 3 * SO_FAR_BYTES


def test_inspect_says_of_a_launcher_that_never_came_what_recovery_would_find(tmp_path: Path) -> None:
    """The directory is there, and nobody in it: a fence would take the place, and in the same boot prove it."""
    run = put(tmp_path, RECORDS)
    (run / "calls" / "t1c1").mkdir(parents=True)
    assert inspect(run).calls == {"t1c1": "interrupted"}  # the hand-over was in another boot
    here = put(tmp_path / "here", [RECORDS[0], j.claimed(boot_id()), *RECORDS[2:]])
    (here / "calls" / "t1c1").mkdir(parents=True)
    assert inspect(here).calls == {"t1c1": "not_started"}
    assert list((here / "calls" / "t1c1").iterdir()) == []
