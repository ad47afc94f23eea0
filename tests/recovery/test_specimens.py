"""The specimens: every version reads what an earlier one wrote, judges it as it did, and goes on with it to the end."""

import hashlib
import re
import shutil
import stat
from pathlib import Path

import orjson
import pytest

from onward.core.ids import is_run_id
from onward.recovery import inspect
from onward.testing.strict import check_request
from tests.crash.journals import read_journal
from tests.recovery.runs import tree
from tests.recovery.serving import Models, gone_on

SPECIMENS = Path(__file__).parents[2] / "runs" / "specimens"
ROW = re.compile(r"^\| ([a-z0-9-]+) \| ([^|]+) \| ([a-z-]+) \| ([a-z]+) \|$", re.MULTILINE)
ROWS = [row for row in ROW.findall((SPECIMENS / "README.md").read_text()) if row[0] != "specimen"]
NAMES = [row[0] for row in ROWS]
UNREADABLE = {"empty-journal", "first-line-bad", "newer"}

# What the model reads in the first request after the interruption, beside what holds for all.
READS = {
    "steered-mid-inference": ["And the drafts."],
    "turn-without-batch": ["[error] not started"],
    "batch-not-started": ["[error] not started"],
    "command-in-flight": ["[error] interrupted", "step 1 of 9"],
    "command-ended-unjournaled": ["all built"],
    "command-never-started": ["[error] not started"],
    "file-write-in-flight": ["[error] interrupted", "does not exist"],
    "batch-half-done": ["[error] interrupted", "[error] not started", "done"],
    "power-cut": ["[error] interrupted", "last minute"],
    "late-result": ["[error] interrupted"],
    "answered": ["git push"],
    "written-by-hand": ["Hurry."],
    "gap-before-a-turn": ["[error] not started"],
}
NEVER_READS = {"late-result": "built after all", "command-ended-unjournaled": "[error]"}
# Those that were not interrupted, or were told already.
NOT_TOLD = {"only-started", "end-not-written", "drained", "retrying", "answered", "completed"}


def copied(name: str, runs: Path) -> Path:
    shutil.copytree(SPECIMENS / name, runs / name)
    runs.chmod(0o700)
    return runs / name


def test_every_specimen_stands_in_the_readme_and_is_as_it_was() -> None:
    """Nothing is edited, nothing is missing; what is added is added to the sums."""
    listed = [text.split("  ", 1) for text in (SPECIMENS / "SHA256SUMS").read_text().splitlines()]
    sums = {name: checksum for checksum, name in listed}
    files = [path for path in SPECIMENS.glob("*/**/*") if not path.is_dir()]

    assert all(stat.S_ISREG(path.lstat().st_mode) for path in files)
    assert {str(p.relative_to(SPECIMENS)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files} == sums
    assert sorted(NAMES) == sorted(path.name for path in SPECIMENS.iterdir() if path.is_dir())
    assert len(set(NAMES)) == len(NAMES)
    assert all(map(is_run_id, NAMES))


@pytest.mark.parametrize(("name", "says"), [(row[0], row[2]) for row in ROWS], ids=NAMES)
def test_inspect_says_what_the_readme_says(name: str, says: str) -> None:
    """In place: the specimens are read where they lie, and nothing is written there."""
    before = tree(SPECIMENS / name)
    found = inspect(SPECIMENS / name)

    assert (found.reason, found.revivable) == (says, says in ("interrupted", "continues"))
    assert tree(SPECIMENS / name) == before


@pytest.mark.parametrize(("name", "becomes"), [(row[0], row[3]) for row in ROWS], ids=NAMES)
async def test_a_daemon_goes_on_with_it_to_the_end(name: str, becomes: str, tmp_path: Path) -> None:
    """It comes to the state that the README names, reads what it must, and a second daemon changes nothing."""
    (tmp_path / "script").write_bytes(orjson.dumps({"turns": []}))
    models = Models(tmp_path / "script")
    run = copied(name, tmp_path / "runs")
    before = tree(run)

    await gone_on(tmp_path / "runs", name, becomes, models)

    assert [problem for request in models.requests for problem in check_request(request)] == []
    if name in UNREADABLE:
        assert tree(run).items() >= before.items()
        return
    assert bool(models.requests) == (becomes == "completed" and name not in ("completed", "end-not-written"))
    if models.requests:
        told_in_the_first_request(name, orjson.dumps(models.requests[0]).decode())
    nothing_is_lost_or_done_twice(name, run)
    after = (run / "journal.jsonl").read_bytes()
    await gone_on(tmp_path / "runs", name, becomes, models)
    assert becomes not in ("completed", "failed", "cancelled") or (run / "journal.jsonl").read_bytes() == after


def told_in_the_first_request(name: str, request: str) -> None:
    for words in READS.get(name, []):
        assert words in request, (words, request)
    assert NEVER_READS.get(name, "never") not in request
    assert request.count("[background event]") == (name not in NOT_TOLD)


def nothing_is_lost_or_done_twice(name: str, run: Path) -> None:
    """Every call has one settlement, none was handed over after it, and what stood in the file still stands there."""
    old = (SPECIMENS / name / "journal.jsonl").read_bytes()
    kept = (run / "journal.jsonl").read_bytes() + b"".join(path.read_bytes() for path in run.glob("journal.torn-*"))
    assert all(line in kept for line in old.split(b"\n") if line)
    journal = read_journal(run)
    handed_over = [record["call_id"] for record in journal.of("ToolCallStarted")]
    assert len(handed_over) == len(set(handed_over))
    if name.startswith(("gap-", "written-by-hand", "blob-missing")):
        return
    assert not journal.problems
    started_before = [line for line in old.split(b"\n") if b'"ToolCallStarted"' in line]
    assert len(handed_over) == len(started_before) + (name == "answered")
    if journal.of("RunEnded"):
        settled = {call_id: len(done) for call_id, done in journal.settlements().items()}
        assert settled == dict.fromkeys(journal.calls(), 2 if name == "late-result" else 1)
