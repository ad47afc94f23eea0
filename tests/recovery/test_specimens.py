"""The specimens: every version reads what an earlier one wrote, judges it as it did, and goes on with it to the end."""

import hashlib
import os
import re
import shutil
import stat
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import orjson
import pytest

from onward.config.settings import Settings
from onward.core.conversation import ProviderMessage
from onward.core.ids import is_run_id
from onward.native.models.scripted import ScriptedModel
from onward.native.tools.registry import builtin_tools
from onward.ports.model import Model, ModelRequest, ModelTurn
from onward.processes import LauncherSpawner
from onward.recovery import inspect
from onward.recovery.recover import Claimant
from onward.store.clock import SystemClock
from onward.supervisor.supervisor import Supervisor
from onward.testing.strict import check_request
from tests.crash.journals import read_journal
from tests.recovery.runs import tree
from tests.specimens.writing import BOOT
from tests.store.worlds import store_at
from tests.support import eventually

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


@dataclass
class Models:
    """One script for all: whatever is asked gets the answer that ends the run. Each request is held to the rules."""

    script: Path
    requests: list[list[ProviderMessage]] = field(default_factory=list)

    def check(self, name: str | None, fallback: Sequence[str] = ()) -> str:
        return name or ""

    def configure(self, settings: Settings) -> None:
        pass

    async def load(self, name: str) -> Model:
        return await anyio.to_thread.run_sync(Strict, self)


class Strict(ScriptedModel):
    def __init__(self, models: Models) -> None:
        super().__init__(models.script, SystemClock())
        self._models = models

    async def infer(self, request: ModelRequest, on_delta: Callable[[str], None] | None = None) -> ModelTurn:
        self._models.requests.append(list(request.messages))
        return await super().infer(request, on_delta)


@asynccontextmanager
async def serving(runs: Path, models: Models) -> AsyncIterator[Supervisor]:
    """A daemon's life on real files and processes, in the boot in which most specimens were interrupted."""
    async with store_at(runs) as store:
        supervisor = Supervisor(
            store=store,
            spawner=LauncherSpawner(),
            tools=dict(builtin_tools()),
            models=models,
            clock=SystemClock(),
            claimant=Claimant(machine_id="machine", runs_inode=7, boot_id=BOOT, pid=os.getpid(), start_ticks=1),
            agent_dirs=[],
        )
        await supervisor.boot()
        with supervisor._admission._queue, supervisor._admission._queued:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(supervisor.serve)
                yield supervisor
                tasks.cancel_scope.cancel()


def copied(name: str, runs: Path) -> Path:
    shutil.copytree(SPECIMENS / name, runs / name)
    runs.chmod(0o700)
    return runs / name


async def gone_on(runs: Path, name: str, status: str, models: Models) -> None:
    """Let a daemon go on with the run until it has this status and rests."""
    async with serving(runs, models) as supervisor:
        entry = supervisor._entries[name]

        def rests() -> bool:
            return entry.loaded is None and not entry.queued and entry.shown()["status"] == status

        try:
            await eventually(rests, 30)
        except AssertionError:
            raise AssertionError(f"{name} is {entry.shown()}") from None


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
