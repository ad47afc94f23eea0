"""The lock of a runs directory: one daemon holds it, everybody may ask, nobody is blocked by what a dead one left."""

import os
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from onward.errors import Refused
from onward.store import lock, mounts
from onward.store.lock import Holder, holder_of, take
from tests.store.worlds import store_at
from tests.support import until

ME = Holder(host="here", pid=os.getpid(), start_ticks=7, boot_id="boot")

HOLD = """
import sys
from onward.store.lock import Holder, take
held = take(sys.argv[1], Holder(host="there", pid=4711))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / ".lock")


def test_a_second_daemon_is_refused_and_told_who_holds_the_lock(path: str) -> None:
    held = take(path, ME)
    with pytest.raises(Refused, match=f"process {os.getpid()} on here") as refused:
        take(path, ME)
    assert refused.value.exit_code == 8
    held.release()
    take(path, ME).release()


def test_the_lock_goes_with_its_process(path: str) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        assert holder_of(path) == Holder(host="there", pid=4711)
        with pytest.raises(Refused, match="process 4711 on there"):
            take(path, ME)
        other.kill()
    held = until(lambda: take(path, ME))
    assert holder_of(path) == ME
    held.release()


async def test_a_daemon_waits_for_the_one_before_it(tmp_path: Path) -> None:
    ends = False

    async def next_one() -> None:
        async with store_at(tmp_path, lock_wait_s=60.0):
            assert ends

    async with anyio.create_task_group() as tasks, store_at(tmp_path):
        tasks.start_soon(next_one)
        await anyio.wait_all_tasks_blocked()
        ends = True


async def test_waiting_for_the_one_before_can_be_cancelled(tmp_path: Path) -> None:
    """A daemon that is told to stop meanwhile stops at once, as one that has nothing in hand."""
    async with store_at(tmp_path):
        with anyio.move_on_after(0.1) as waiting:
            async with store_at(tmp_path, lock_wait_s=5.0):
                pass
    assert waiting.cancelled_caught


@pytest.mark.parametrize("left", [b"", b"\x00\x00", b"[]", b'{"pid": 1}', b'{"host":"a","pid":1,"other":2}', b"\xff"])
def test_what_a_dead_daemon_left_in_the_file_is_no_obstacle(path: str, left: bytes) -> None:
    Path(path).write_bytes(left)
    assert holder_of(path) is None
    held = take(path, ME)
    assert holder_of(path) == ME
    held.release()
    assert holder_of(path) is None


def test_asking_takes_nothing_and_changes_nothing(path: str) -> None:
    """Two hundred launchers ask while a daemon starts."""
    assert holder_of(path) is None
    assert not Path(path).exists()
    held = take(path, ME)
    before = Path(path).read_bytes()
    assert {str(holder_of(path)) for _ in range(200)} == {str(ME)}
    assert Path(path).read_bytes() == before
    held.release()
    asking = [os.open(path, os.O_RDONLY) for _ in range(200)]
    take(path, ME).release()
    for fd in asking:
        os.close(fd)


@pytest.mark.parametrize("harm", ["removed", "replaced", "linked"])
def test_a_lock_file_that_is_not_there_any_more_is_noticed(path: str, harm: str) -> None:
    """Somebody else may hold the runs by now."""
    held = take(path, ME)
    assert held.still_ours()
    os.rename(path, f"{path}.moved")
    if harm == "replaced":
        Path(path).write_text("")
    if harm == "linked":
        os.symlink(f"{path}.moved", path)
    assert not held.still_ours()
    held.release()


def test_a_link_in_place_of_the_lock_is_not_followed(path: str, tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("kept")
    os.symlink(tmp_path / "victim", path)
    with pytest.raises(OSError, match="symbolic links"):
        take(path, ME)
    assert holder_of(path) is None
    assert (tmp_path / "victim").read_text() == "kept"


def test_a_fifo_in_place_of_the_lock_is_not_waited_for(path: str) -> None:
    os.mkfifo(path)
    assert holder_of(path) is None


async def test_the_store_holds_the_lock_from_its_opening_to_its_end(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        found = await to_thread.run_sync(holder_of, str(store.lock_path))
        assert found is not None
        assert found.pid == os.getpid()
        assert await to_thread.run_sync(store.still_ours)
        with pytest.raises(Refused, match=f"process {os.getpid()}"):
            async with store_at(tmp_path):
                pass
        os.unlink(store.lock_path)
        assert not await to_thread.run_sync(store.still_ours)
    assert await to_thread.run_sync(holder_of, str(tmp_path / ".lock")) is None


MOUNTINFO = r"""
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:26 / /proc rw - proc proc rw
40 22 0:40 / /mnt/nfs rw,relatime shared:2 - nfs4 server:/export rw,vers=4.2
41 22 0:41 / /mnt/nfs/local rw - xfs /dev/vdb rw
42 22 0:42 / /mnt/with\040space rw master:3 propagate_from:2 - fuse.sshfs user@host:/ rw
43 22 0:43 / /mnt/over rw - ext4 /dev/vdc rw
44 43 0:44 / /mnt/over rw - 9p share rw
45 22 0:45 / /tmp rw - tmpfs tmpfs rw
""".strip()


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "ext4"),
        ("/home/me/runs", "ext4"),
        ("/mnt/nfs", "nfs4"),
        ("/mnt/nfs/runs", "nfs4"),
        ("/mnt/nfsx", "ext4"),
        ("/mnt/nfs/local/runs", "xfs"),
        ("/mnt/with space/runs", "fuse.sshfs"),
        ("/mnt/over/runs", "9p"),
        ("/tmp/x", "tmpfs"),
    ],
)
def test_the_file_system_of_a_path_is_that_of_the_mount_it_lies_in(path: str, kind: str) -> None:
    """Of the longest, and of the last one where one covers another."""
    assert mounts.kind_of(path, MOUNTINFO) == kind


@pytest.mark.parametrize(
    ("kind", "refused"),
    [("nfs4", True), ("cifs", True), ("9p", True), ("fuse", True), ("fuse.sshfs", True), ("fuseblk", True),
     ("ext4", False), ("xfs", False), ("btrfs", False), ("zfs", False), ("tmpfs", False), ("overlay", False)],
)  # fmt: skip
def test_network_and_fuse_file_systems_are_told_from_local_ones(tmp_path: Path, kind: str, refused: bool) -> None:
    file = tmp_path / "mountinfo"
    file.write_text(f"22 1 254:0 / / rw - {kind} source rw\n")
    assert mounts.network_file_system(tmp_path, file) == (kind if refused else None)


async def test_a_runs_directory_on_a_network_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mounts, "network_file_system", lambda _path: "nfs4")
    with pytest.raises(Refused, match=r"lies on nfs4.*allow_network_fs"):
        async with store_at(tmp_path):
            pass
    assert list(tmp_path.iterdir()) == []


def test_this_process_says_who_it_is() -> None:
    assert lock.this_process("b", 5) == Holder(host=os.uname().nodename, pid=os.getpid(), start_ticks=5, boot_id="b")
