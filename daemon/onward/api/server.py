"""Serving the API on a Unix socket of our own: uvicorn, embedded, without its signals, logs and permissions."""

import asyncio
import contextlib
import os
import socket
import stat
import struct
from collections.abc import Callable, Iterator
from os.path import lexists
from pathlib import Path
from typing import Any, cast

import anyio
import structlog
import uvicorn
from anyio import to_thread
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from onward.config.places import check_socket
from onward.errors import OnwardError, Refused

MAX_CONNECTIONS = 64
BACKLOG = 256
ACCEPTED_AT_ONCE = 32
"""asyncio accepts so many before it lets any of them be turned away: they must all fit into `ulimit -n`."""
SILENCE_S = 30.0
GRACE_S = 3.0
PROBE_S = 2.0
LOOK_S = 2.0
"""Seconds between two looks at the socket's file."""

log = structlog.get_logger()

_UCRED = struct.Struct("iII")
_TURNED_AWAY = (
    b"HTTP/1.1 %s\r\ncontent-type: application/problem+json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%s"
)


async def serve(
    app: ASGIApp,
    socket_path: Path,
    *,
    on_ready: Callable[[], object],
    shutdown: anyio.Event,
    listener: socket.socket | None = None,
) -> None:
    """Serve `app` at `socket_path` until `shutdown` is set, then end open requests within a few seconds.

    The lock on the runs directory must be held: it is what makes this the only daemon, and what allows the removal of
    a socket that nobody answers.

    Args:
        app: From `make_app`, which got the same `shutdown`.
        socket_path: Made with mode 0600, in a directory that is made with mode 0700 where it is missing; and made
            again when somebody has removed it.
        on_ready: Called once, on the event loop, when the socket is served.
        shutdown: Ends it.
        listener: Listens already, made by who started this daemon and left to it at the end; None: made here.

    Raises:
        Refused: Somebody else serves there, something else stands there, or others can write the directory.
        BadConfiguration: The path is too long.
    """
    server = _Server(_config(app), on_ready, shutdown)
    if listener is not None:
        return await server.serve([listener.dup()])  # uvicorn closes what it is given
    listener = await to_thread.run_sync(open_listener, socket_path)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.stay_at, socket_path)
            await server.serve([listener])
            tasks.cancel_scope.cancel()
    finally:
        listener.close()
        with anyio.CancelScope(shield=True):
            # Gone with the daemon, so that clients know at once; the runs' lock is still held.
            await to_thread.run_sync(_remove, socket_path)


def open_listener(path: Path) -> socket.socket:
    """Bind and listen at `path`; only this user can connect, from the first moment on.

    Raises:
        Refused, BadConfiguration: As `serve`.
    """
    check_socket(path)
    _make_directory(path.parent)
    _clear(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # The mode of the file is that of the socket, less the umask (unix(7) on Linux). Changing the umask instead
        # would take the x bit from every directory that another thread makes in that moment.
        os.fchmod(listener.fileno(), 0o600)
        listener.bind(str(path))
        if stat.S_IMODE(path.lstat().st_mode) != 0o600:
            path.chmod(0o600)
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def peer(connection: Any) -> tuple[int, int]:
    """Return pid and user at the other end of a Unix socket, as the kernel knows them; the pid may be gone by now."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    pid, uid, _ = _UCRED.unpack(raw)
    return int(pid), int(uid)


def _make_directory(directory: Path) -> None:
    missing = [part for part in (directory, *directory.parents) if not part.exists()]
    for part in reversed(missing):
        part.mkdir(mode=0o700, exist_ok=True)
    found = directory.stat()
    if found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise Refused(
            f"{str(directory)!r} must belong to this user, and nobody else may write there, before a socket is made "
            f"in it (owner {found.st_uid}, mode {stat.S_IMODE(found.st_mode):04o}): chmod go-w it or choose another"
        )


def _clear(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise Refused(f"{str(path)!r} is there and is no socket; it was left alone. Move it away or set ONWARD_SOCKET")
    if _is_served(path):
        raise Refused(f"somebody serves at {str(path)!r} already; `onward status` asks who")
    path.unlink(missing_ok=True)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError, Refused):  # what somebody else has put there meanwhile is theirs
        _clear(path)


def _is_served(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(PROBE_S)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            # A full backlog, no permission: somebody may be there. A slow daemon is not a dead one.
            return True
    return True


def _config(app: ASGIApp) -> uvicorn.Config:
    return uvicorn.Config(
        cast("Any", app),
        http=_Protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        backlog=ACCEPTED_AT_ONCE,
    )


class _Protocol(H11Protocol):
    """Turns away strangers, and whoever comes when all places are taken, before anything is read."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        pid, uid = peer(transport.get_extra_info("socket"))
        if uid not in (0, os.geteuid()):
            self._turn_away(b"403 Forbidden", b'{"status":403,"code":"refused","detail":"this daemon is not yours"}')
        elif len(self.connections) > MAX_CONNECTIONS:
            self._turn_away(b"503 Service Unavailable", b'{"status":503,"code":"busy","detail":"too many connections"}')
        else:
            self.app_state = {**self.app_state, "peer_uid": uid, "peer_pid": pid}
            # As after a request: whoever says nothing does not keep a place for ever.
            self.timeout_keep_alive_task = self.loop.call_later(SILENCE_S, self.timeout_keep_alive_handler)

    def _turn_away(self, status: bytes, body: bytes) -> None:
        self.connections.discard(self)
        self.transport.write(_TURNED_AWAY % (status, len(body), body))
        self.transport.close()


class _Server(uvicorn.Server):
    """Ends by our event instead of signals, which belong to the supervisor, and says when it serves."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], object], shutdown: anyio.Event) -> None:
        super().__init__(config)
        self._on_ready, self._shutdown = on_ready, shutdown

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(BACKLOG)  # asyncio made it as short as what it accepts at once
        self._on_ready()

    async def stay_at(self, path: Path) -> None:
        """Serve there anew whenever the socket's file is gone: what is below /run goes with a user's last login."""
        while True:
            await anyio.sleep(LOOK_S)
            if await to_thread.run_sync(lexists, path):
                continue
            try:
                listener = await to_thread.run_sync(open_listener, path)
            except (OSError, OnwardError):
                continue  # the directory may come back later
            for server in self.servers:
                server.close()  # nobody can reach it any more
            await super().startup([listener])
            listener.listen(BACKLOG)
            log.warning("the socket was removed and is served again", socket=str(path))

    async def main_loop(self) -> None:
        # uvicorn looks ten times a second whether it should end, and makes Date headers; an idle daemon sleeps.
        await self._shutdown.wait()
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # In place of uvicorn's, which sleeps in steps of 100 ms and leaves open what did not end in time.
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        await self._all_ended(GRACE_S)
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await self._all_ended(GRACE_S)
        for task in self.server_state.tasks:
            task.cancel()

    async def _all_ended(self, within_s: float) -> None:
        with anyio.move_on_after(within_s):
            while self.server_state.connections or self.server_state.tasks:  # noqa: ASYNC110  # uvicorn has no event
                await anyio.sleep(0.01)
