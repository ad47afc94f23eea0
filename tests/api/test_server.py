"""The socket is ours alone, from the first moment, and nobody else's is touched."""

import os
import shutil
import socket
import stat
from pathlib import Path

import anyio
import pytest
from anyio import to_thread
from anyio.abc import SocketStream

from onward.api import server
from onward.api.server import MAX_CONNECTIONS, open_listener
from onward.errors import BadConfiguration, Refused
from onward.testing.fake_operations import FakeOperations
from tests.api.serving import Served, serving
from tests.support import eventually


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "onward.sock"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_socket_and_directory_are_private_whatever_the_umask(umask: int, path: Path) -> None:
    before = os.umask(umask)
    try:
        open_listener(path).close()
        assert os.umask(umask) == umask
    finally:
        os.umask(before)
    assert (mode(path), mode(path.parent)) == (0o600, 0o700)


def test_a_socket_that_nobody_answers_is_replaced(path: Path) -> None:
    open_listener(path).close()
    open_listener(path).close()
    assert path.is_socket()


def test_a_socket_that_is_served_is_refused_also_when_its_daemon_does_not_answer(path: Path) -> None:
    with open_listener(path) as first:
        inode = path.stat().st_ino
        with pytest.raises(Refused, match="serves"):
            open_listener(path)
        first.listen(0)
        waiting = [socket.socket(socket.AF_UNIX) for _ in range(3)]
        for client in waiting:
            client.setblocking(False)
            client.connect_ex(str(path))
        with pytest.raises(Refused, match="serves"):
            open_listener(path)
        assert path.stat().st_ino == inode
        for client in waiting:
            client.close()


def test_what_is_no_socket_is_never_removed(path: Path, tmp_path: Path) -> None:
    path.parent.mkdir(mode=0o700)
    path.write_text("precious")
    with pytest.raises(Refused, match="no socket"):
        open_listener(path)
    assert path.read_text() == "precious"
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Refused, match="no socket"):
        open_listener(path)


@pytest.mark.parametrize("open_to", [0o770, 0o707, 0o777])
def test_a_directory_that_others_can_write_is_refused(open_to: int, path: Path) -> None:
    path.parent.mkdir()
    path.parent.chmod(open_to)
    with pytest.raises(Refused, match="nobody else may write"):
        open_listener(path)
    assert not path.exists()


def test_a_path_that_the_kernel_does_not_take_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadConfiguration, match="at most 107"):
        open_listener(tmp_path / ("x" * 108))


async def test_the_socket_goes_with_the_daemon(path: Path, operations: FakeOperations) -> None:
    async with serving(path, operations) as served:
        assert (await served.client.get("/healthz")).status_code == 200
    assert not path.exists()


async def test_a_socket_that_was_removed_is_served_again(
    path: Path, operations: FakeOperations, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its directory, too: what is below /run goes with a user's last login. Who is connected stays so."""
    monkeypatch.setattr(server, "LOOK_S", 0.01)
    async with serving(path, operations):
        connected = await anyio.connect_unix(path)

        async def answers(connection: SocketStream) -> None:
            await connection.send(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert b" 200 " in await connection.receive()

        await answers(connected)
        descriptors = len(os.listdir("/proc/self/fd"))
        for remove in (path.unlink, lambda: shutil.rmtree(path.parent)):
            await to_thread.run_sync(remove)
            await eventually(path.exists)
            assert (mode(path), mode(path.parent)) == (0o600, 0o700)
            async with await anyio.connect_unix(path) as another:
                await answers(another)
            await answers(connected)
            await eventually(lambda: len(os.listdir("/proc/self/fd")) <= descriptors)
        await connected.aclose()


async def test_what_took_the_place_of_a_socket_is_left_alone(
    path: Path, operations: FakeOperations, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "LOOK_S", 0.01)
    looked = 0

    def look(name: Path) -> bool:
        nonlocal looked
        looked += 1
        return os.path.lexists(name)

    theirs = path.parent.with_name("theirs")
    theirs.write_text("precious")
    async with serving(path, operations):
        theirs.rename(path)
        monkeypatch.setattr(server, "lexists", look)
        await eventually(lambda: looked > 2)
    assert path.read_text() == "precious"


async def test_another_user_is_turned_away(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "peer", lambda _: (1, 4711))
    response = await served.client.get("/healthz")
    assert (response.status_code, response.json()["code"]) == (403, "refused")


async def test_the_user_who_asks_is_the_kernels_word(served: Served, operations: FakeOperations) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        assert server.peer(ours) == (os.getpid(), os.getuid())
    served.client.headers["onward-by"] = "root"
    run_id = await served.started()
    import pwd

    assert operations.requests[run_id].by == pwd.getpwuid(os.getuid()).pw_name


async def test_connections_are_bounded_and_silent_ones_free_their_place(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "SILENCE_S", 0.2)
    silent = [await anyio.connect_unix(served.socket) for _ in range(MAX_CONNECTIONS)]
    refused = await served.client.get("/healthz")
    assert (refused.status_code, refused.json()["code"]) == (503, "busy")
    for connection in silent:
        with pytest.raises(anyio.EndOfStream):
            await connection.receive()
        await connection.aclose()
    assert (await served.client.get("/healthz")).status_code == 200


async def test_a_crowd_is_turned_away_in_small_numbers_and_leaves_no_descriptors(served: Served) -> None:
    before = len(os.listdir("/proc/self/fd"))
    crowd = [socket.socket(socket.AF_UNIX) for _ in range(200)]

    def come() -> None:
        for client in crowd:
            client.connect(str(served.socket))

    await to_thread.run_sync(come)
    served_at_most = before + len(crowd) + MAX_CONNECTIONS
    await eventually(lambda: len(os.listdir("/proc/self/fd")) <= served_at_most + 1)
    for client in crowd:
        client.close()
    assert server.ACCEPTED_AT_ONCE + MAX_CONNECTIONS < 128
    assert (await served.client.get("/healthz")).status_code == 200


async def test_a_request_that_does_not_end_is_cut_off_at_shutdown(
    path: Path, operations: FakeOperations, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "GRACE_S", 0.1)
    async with serving(path, operations) as served:
        connection = await anyio.connect_unix(path)
        await connection.send(b"POST /v1/runs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n")
        await connection.send(b"onward-request: 1\r\ncontent-length: 10\r\n\r\n{")
        await served.client.get("/healthz")
        served.shutdown.set()
        await eventually(lambda: not path.exists())
    await connection.aclose()
    await to_thread.run_sync(path.parent.rmdir)
