"""What a command prints is kept, bounded, counted, and read back as text."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread

from onward.ports.process import CallExit, EndedBy, Trace
from onward.processes import LauncherSpawner, read_output
from onward.processes.evidence import fence, outputs, probe
from tests.processes.launching import children, command, launcher_of, printed, start_daemon
from tests.support import until

MIB = 1 << 20


async def run(runs: Path, script: str, **changes: Any) -> tuple[CallExit, Path]:
    spec = command(runs, script, **changes)
    ended = await LauncherSpawner().run(spec)
    assert ended is not None
    return ended, spec.call_dir


async def test_150_mb_without_a_newline_are_bounded_on_disk_and_in_memory(tmp_path: Path) -> None:
    script = "printf first; yes | tr -d '\\n' | head -c 150000000; printf last; grep VmHWM /proc/$PPID/status >&2"
    ended, call_dir = await run(tmp_path, script)
    stdout, stderr = await to_thread.run_sync(outputs, call_dir)
    assert len(stdout) == 2 * MIB
    assert (stdout[:6], stdout[-5:]) == (b"firsty", b"ylast")
    assert (ended.stdout_dropped, ended.intact) == (150_000_009 - 2 * MIB, True)
    assert int(stderr.split()[1]) < 40_000  # KiB the launcher ever had


async def test_an_external_agents_output_is_kept_whole(tmp_path: Path) -> None:
    ended, call_dir = await run(tmp_path, "head -c 5000000 /dev/zero; echo end", tail_bytes=None)
    assert (call_dir / "stdout").stat().st_size == 5_000_004
    assert (ended.stdout_dropped, ended.intact) == (0, True)


async def test_stderr_is_drained_while_stdout_is_read(tmp_path: Path) -> None:
    """A megabyte to stderr in the middle of stdout: neither pipe may fill up and stop the command."""
    ended, call_dir = await run(tmp_path, "echo one; head -c 1000000 /dev/zero >&2; echo two", deadline_s=20.0)
    stdout, stderr = await to_thread.run_sync(outputs, call_dir)
    assert (ended.code, stdout, len(stderr)) == (0, b"one\ntwo\n", 1_000_000)


async def test_only_the_tail_or_nothing_can_be_kept(tmp_path: Path) -> None:
    ended, call_dir = await run(tmp_path, "seq 100000; echo err >&2", head_bytes=0, tail_bytes=0)
    assert await to_thread.run_sync(outputs, call_dir) == (b"", b"")
    assert (ended.stdout_dropped, ended.stderr_dropped, ended.intact) == (588_895, 4, True)


async def test_invalid_utf8_becomes_text(tmp_path: Path) -> None:
    _, call_dir = await run(tmp_path, "printf 'a\\377\\000b\\303'")
    assert await to_thread.run_sync(read_output, call_dir, "stdout", 4096) == "a\ufffd\ufffdb\ufffd"


async def test_read_output_counts_what_is_missing(tmp_path: Path) -> None:
    _, call_dir = await run(tmp_path, "printf start; head -c 9000 /dev/zero | tr '\\0' x; printf end", head_bytes=1000)
    whole = await to_thread.run_sync(read_output, call_dir, "stdout", 10_000)
    assert (whole[:6], whole[-4:], len(whole)) == ("startx", "xend", 9008)
    short = await to_thread.run_sync(read_output, call_dir, "stdout", 1096)
    assert short == f"start{'x' * 495}\n[... 8008 bytes left out ...]\n{'x' * 497}end"


async def test_read_output_counts_what_the_launcher_did_not_keep(tmp_path: Path) -> None:
    sizes = {"head_bytes": 10, "tail_bytes": 20}
    _, call_dir = await run(tmp_path, "printf start; head -c 9000 /dev/zero | tr '\\0' x; printf end", **sizes)
    text = await to_thread.run_sync(read_output, call_dir, "stdout", 4096)
    assert text == f"startxxxxx\n[... 8978 bytes left out ...]\n{'x' * 17}end"


async def test_read_output_keeps_its_limit_for_bytes_that_are_no_text(tmp_path: Path) -> None:
    _, call_dir = await run(tmp_path, "head -c 100000 /dev/zero | tr '\\0' '\\377'")
    for limit in (256, 1000, 65536):
        text = await to_thread.run_sync(read_output, call_dir, "stdout", limit)
        assert len(text.encode()) <= limit


def test_what_a_living_command_printed_can_be_read(tmp_path: Path) -> None:
    spec = command(tmp_path, "seq 100000; echo begun; read line < go", head_bytes=100, tail_bytes=100)
    os.mkfifo(tmp_path / "go")
    daemon = start_daemon(spec)
    until(lambda: printed(spec.call_dir, "begun"))
    text = read_output(spec.call_dir, "stdout", 256)
    head, marker, tail = text.partition(" bytes left out ...]\n")
    head, _, count = head.rpartition("\n[... ")
    assert (head[:6], len(head), tail[-6:]) == ("1\n2\n3\n", 80, "begun\n"), text
    assert len(head) + int(count) + len(tail) == 588_901, marker
    assert probe(spec.call_dir).trace is Trace.ALIVE
    (tmp_path / "go").write_text("on\n")
    daemon.wait(20)


async def test_output_that_was_cut_after_the_exit_record_is_not_intact(tmp_path: Path) -> None:
    ended, call_dir = await run(tmp_path, "echo one")
    assert ended.intact
    for damage in ("truncate -s 0", "rm"):
        await anyio.run_process(f"{damage} {call_dir}/stdout")
        found = await to_thread.run_sync(probe, call_dir)
        assert found.trace is Trace.EXITED
        assert found.exit is not None
        assert not found.exit.intact


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"protocol": 2}', b'{"protocol": 1, "code": "x"}', b"\xff"])
async def test_an_exit_record_that_is_not_whole_counts_as_none(tmp_path: Path, content: bytes) -> None:
    _, call_dir = await run(tmp_path, "true")
    (call_dir / "exit").write_bytes(content)
    assert (await to_thread.run_sync(probe, call_dir)).trace is Trace.LOST


@pytest.mark.parametrize("name", ["identity", "exit", "stdout"])
@pytest.mark.parametrize("kind", ["link", "fifo", "directory"])
async def test_a_planted_file_is_not_read_and_the_call_is_lost(tmp_path: Path, name: str, kind: str) -> None:
    """Whatever it is, it is not what the launcher wrote: how the command ended is unknown."""
    _, call_dir = await run(tmp_path, "true")
    (call_dir / name).rename(tmp_path / "real")
    if kind == "link":
        (call_dir / name).symlink_to(tmp_path / "real")
    elif kind == "fifo":
        os.mkfifo(call_dir / name)
    else:
        (call_dir / name).mkdir()
    for look in (probe, fence):
        assert (await to_thread.run_sync(look, call_dir)).trace is Trace.LOST


async def test_a_linked_call_directory_is_not_followed(tmp_path: Path) -> None:
    _, call_dir = await run(tmp_path, "true")
    (tmp_path / "t9c9").symlink_to(call_dir)
    for look in (probe, fence):
        assert (await to_thread.run_sync(look, tmp_path / "t9c9")).trace is Trace.LOST


async def test_a_full_disk_delays_the_exit_record_but_does_not_lose_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONWARD_LAUNCHER_FAULT", "launcher.before_exit=enospc,launcher.exit_written=enospc")
    ended, _ = await run(tmp_path, "echo out; exit 3")
    assert (ended.code, ended.intact) == (3, True)


@contextmanager
def small_disk(place: Path) -> Iterator[Path]:
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)], capture_output=True)
    if mounted.returncode:
        pytest.skip("not allowed to mount a small file system")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.parametrize("deadline_s", [None, 0.3])
def test_a_really_full_disk_delays_a_call_and_loses_nothing(tmp_path: Path, deadline_s: float | None) -> None:
    """The command waits for space as for a slow reader. Ended by its deadline meanwhile, all it printed is kept."""
    with small_disk(tmp_path / "small") as small:
        spec = command(small, "head -c 1000000 /dev/zero; echo end", cwd="/", deadline_s=deadline_s)
        daemon = start_daemon(spec)
        until(lambda: (spec.call_dir / "stdout").exists() and os.statvfs(small).f_bavail == 0)
        launcher = launcher_of(spec.call_dir)
        if deadline_s:
            until(lambda: not children(launcher))
        assert probe(spec.call_dir).trace is Trace.ALIVE
        on_disk = (spec.call_dir / "stdout").stat().st_size
        subprocess.run(["mount", "-o", "remount,size=8m", str(small)], check=True)
        daemon.wait(20)
        found = probe(spec.call_dir).exit
        assert found is not None
        length = (spec.call_dir / "stdout").stat().st_size
        if deadline_s:
            assert (found.ended_by, found.intact, length >= on_disk + 65536) == (EndedBy.DEADLINE, True, True)
        else:
            assert (found.code, found.intact, length) == (0, True, 1_000_004)
