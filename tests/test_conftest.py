"""The guard in conftest.py sees what it must see, and nothing else."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType

import anyio.to_thread
import pytest
from blockbuster import BlockingError

import onward
from tests.conftest import loop_blockers

HOME = Path(onward.__file__).parent


def product_code(source: str, file: str = "supervisor/somewhere.py") -> CodeType:
    """Code that looks as if it stood in a file of the package."""
    return compile(source, str(HOME / file), "exec")


def run_on_loop(code: CodeType, **names: object) -> None:
    async def main() -> None:
        exec(code, names)  # noqa: S102  # the only way to stand in a file that does not exist

    blockers = loop_blockers()
    blockers.activate()
    try:
        asyncio.run(main())
    finally:
        blockers.deactivate()


@pytest.mark.parametrize(
    "call",
    [
        "import os; os.fsync(fd)",
        "import os; os.fdatasync(fd)",
        "import os; os.open(path, os.O_RDONLY)",
        "import os; os.write(fd, b'x')",
        "import time; time.sleep(0)",
        "lock.acquire()",
        "with lock: pass",
        "event.wait()",
        "queue.get()",
    ],
)
def test_blocking_call_of_the_product_is_an_error(call: str, tmp_path: Path) -> None:
    import queue

    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    lock = threading.Lock()
    lock.acquire()
    names = {"fd": fd, "path": tmp_path, "lock": lock, "event": threading.Event(), "queue": queue.Queue[int]()}
    try:
        with pytest.raises(BlockingError):
            run_on_loop(product_code(call), **names)
    finally:
        os.close(fd)


def test_the_journal_may_append_on_the_loop_but_not_flush(tmp_path: Path) -> None:
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    try:
        run_on_loop(product_code("import os; os.write(fd, b'x')", "store/journal.py"), fd=fd)
        with pytest.raises(BlockingError):
            run_on_loop(product_code("import os; os.fdatasync(fd)", "store/journal.py"), fd=fd)
    finally:
        os.close(fd)


@pytest.mark.parametrize("call", ["with lock: pass", "lock.acquire(blocking=False)", "thread(target=int).start()"])
def test_a_free_lock_is_no_block(call: str) -> None:
    run_on_loop(product_code(call), lock=threading.Lock(), thread=threading.Thread)


async def test_async_tests_run_on_asyncio_and_may_use_files_and_threads(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    blocking: Callable[[], str] = (tmp_path / "file").read_text
    assert await anyio.to_thread.run_sync(blocking) == "text"
    assert asyncio.get_running_loop().is_running()


async def test_a_subprocess_can_be_started_from_the_loop() -> None:
    result = await anyio.run_process([sys.executable, "-c", "print(1)"], stdin=subprocess.DEVNULL)
    assert result.stdout == b"1\n"


def test_a_caught_blocking_error_still_fails_the_test(tmp_path: Path) -> None:
    test_file = tmp_path / "test_blocked.py"
    code = f"compile('import os; os.fsync(0)', {str(HOME / 'x.py')!r}, 'exec')"
    test_file.write_text(f"async def test_it():\n    try:\n        exec({code})\n    except Exception:\n        pass\n")
    root = Path(__file__).parents[1]
    argv = [sys.executable, "-m", "pytest", "-c", root / "pyproject.toml", f"--rootdir={tmp_path}", test_file]
    (tmp_path / "conftest.py").write_text((root / "tests/conftest.py").read_text())
    done = subprocess.run([*map(str, argv), "-p", "no:randomly"], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, "blocked by os.fsync" in done.stdout) == (1, True), done.stdout + done.stderr
