"""Very large journals and very many runs: memory and time stay bounded."""

import subprocess
import sys
import time
import tracemalloc
from functools import partial
from pathlib import Path

import pytest
from anyio import to_thread

from onward.core.line import encode_body, seal
from tests.store.worlds import RUN, TS, indexed, journal_of, started, store_at

READ = """
import resource, sys
from pathlib import Path
import anyio
from onward.store.lock import this_process
from onward.store.filestore import open_store
from onward.store.clock import SystemClock
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[2]), int(sys.argv[2])))

async def main():
    store = await open_store(Path(sys.argv[1]), SystemClock(), this_process("b", 1), lock_wait_s=0)
    (listed,) = await store.list_runs()
    state = (await store.read("worker-1")).state
    after = pages = 0
    while page := await store.records("worker-1", after=after, limit=1000):
        after, pages = page[-1]["seq"], pages + 1
    print(state.seq, state.failures, after, pages)
    await store.close()

anyio.run(main)
"""


def write_large(file: Path, records: int, size: int) -> None:
    """A run that failed and failed: what a journal holds, but no conversation."""
    fields = {"type": "InferenceFailed", "failure": "overloaded", "retryable": True, "active_s": 1.0}
    body = encode_body({**fields, "message": "x" * size})
    with file.open("ab", buffering=1 << 20) as journal:
        for seq in range(2, records + 1):
            journal.write(seal(seq, seq - 1, TS, body))


async def fold_in_a_child(tmp_path: Path, records: int, size: int, memory: int) -> str:
    async with store_at(tmp_path) as store:
        await store.create(started())
    write_large(journal_of(tmp_path), records, size)
    command = [sys.executable, "-c", READ, str(tmp_path), str(memory)]
    done = await to_thread.run_sync(partial(subprocess.run, command, capture_output=True, text=True, timeout=100))
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


async def test_folding_needs_memory_for_the_state_and_not_for_the_journal(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        await store.create(started())
        write_large(journal_of(tmp_path), 5000, 3000)
        tracemalloc.start()
        try:
            assert (await store.read(RUN)).state.failures == 4999
            assert len(await store.records(RUN, after=4990, limit=100)) == 10
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 6 << 20 < journal_of(tmp_path).stat().st_size


@pytest.mark.slow
async def test_a_journal_of_600_mb_with_200_000_records_is_folded_in_512_mb(tmp_path: Path) -> None:
    assert await fold_in_a_child(tmp_path, 200_000, 3000, 512 << 20) == "200000 199999 200000 200"


async def test_two_thousand_runs_are_listed_without_reading_their_journals(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        await indexed(store)
    index, journal = (tmp_path / RUN / "meta.json").read_bytes(), journal_of(tmp_path).read_bytes()
    for number in range(2, 2001):
        directory = tmp_path / f"worker-{number}"
        directory.mkdir(0o700)
        (directory / "meta.json").write_bytes(index.replace(b'"worker-1"', b'"worker-%d"' % number))
        (directory / "journal.jsonl").write_bytes(b"?" * len(journal))
    async with store_at(tmp_path) as store:
        began = time.process_time()
        listed = await store.list_runs()
        took_s = time.process_time() - began
    assert len([run for run in listed if run.index is not None]) == 2000
    assert took_s < 3
