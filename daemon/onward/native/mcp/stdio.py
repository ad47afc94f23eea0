"""A server as a process of ours that is spoken to over its stdin and stdout.

Written here, not taken from the SDK, for what that leaves open: exactly the environment it is given, messages of
bounded size, stderr that is drained into the log, and a call that knows whether it was written at all.
"""

import os
import signal
import subprocess
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Self

import anyio
import structlog
from anyio import to_thread
from anyio.abc import AsyncResource, ByteReceiveStream, Process
from mcp_types import INTERNAL_ERROR, ErrorData, JSONRPCError, jsonrpc_message_adapter

from mcp.shared.message import SessionMessage
from onward.core.text import decode, display
from onward.native.mcp import sending
from onward.native.mcp.lines import Lines, TooLong
from onward.native.mcp.link import MAX_MESSAGE_BYTES, Link
from onward.native.mcp.place import Place, server_environment
from onward.native.mcp.settings import ServerSettings

STDIN_GRACE_S = 2.0
TERM_GRACE_S = 2.0
KILL_GRACE_S = 2.0
GROUP_GRACE_S = 0.5
LAST_OUTPUT_S = 1.0
EXIT_CODE_S = 0.5
STDERR_LINE_BYTES = 4096
STDERR_LINES = 1000
_IN_THREAD_BYTES = 256 * 1024
_POLL_S = 0.02

log = structlog.get_logger()


@asynccontextmanager
async def stdio_transport(
    settings: ServerSettings, place: Place, link: Link
) -> AsyncGenerator[tuple["Incoming", "Outgoing"]]:
    """Start the server and speak to it; at the end stdin is closed, then TERM, then KILL, its whole process group.

    Raises:
        OSError: It could not be started.
        Unavailable: A variable that it is to get is not set.
    """
    process = await _started(settings, place)
    outgoing = Outgoing(process, link)
    async with anyio.create_task_group() as tasks:
        try:
            tasks.start_soon(_drain, process.stderr, settings, place, link)
            tasks.start_soon(_watch, process, link)
            yield Incoming(process, link), outgoing
        finally:
            with anyio.CancelScope(shield=True):
                if process.returncode is not None:
                    link.end(_how_it_ended(process))
                await outgoing.aclose()
                await _end(process)
            tasks.cancel_scope.cancel()


async def _started(settings: ServerSettings, place: Place) -> Process:
    # Cancelled in between, it would be left running with its pipes open.
    with anyio.CancelScope(shield=True):
        process = await anyio.open_process(
            settings.argv,
            env=server_environment(settings, place),
            cwd=place.workspace,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        await to_thread.run_sync(_prefer_for_oom, process.pid)
    return process  # inside the scope mypy misses a return


def _prefer_for_oom(pid: int) -> None:
    """Make the server a better victim than the daemon when memory runs out, as commands are."""
    with suppress(OSError):
        Path(f"/proc/{pid}/oom_score_adj").write_text("500")


class Incoming(AsyncResource):
    """What the server says, a message a line; the SDK's `ReadStream`."""

    def __init__(self, process: Process, link: Link) -> None:
        self._process = process
        self._link = link
        self._lines = Lines(MAX_MESSAGE_BYTES)
        self._ready: deque[bytes | TooLong] = deque()

    async def receive(self) -> SessionMessage | Exception:
        while True:
            while self._ready:
                if (message := await _message(self._ready.popleft())) is not None:
                    return message
            if self._process.stdout is None:
                raise anyio.EndOfStream
            try:
                self._ready.extend(self._lines.feed(await self._process.stdout.receive()))
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
                await _note_end(self._process, self._link)
                raise anyio.EndOfStream from None

    async def aclose(self) -> None:
        self._ready.clear()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None


class Outgoing(AsyncResource):
    """What the server is told; the SDK's `WriteStream`."""

    def __init__(self, process: Process, link: Link) -> None:
        self._process = process
        self._link = link
        self._lock = anyio.Lock()
        self._closed = False

    async def send(self, item: SessionMessage, /) -> None:
        line = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        async with self._lock:
            if self._closed or self._link.over or self._process.stdin is None:
                raise anyio.ClosedResourceError
            sending.begin()
            try:
                await self._process.stdin.send(line)
            except (OSError, anyio.ClosedResourceError, anyio.BrokenResourceError):
                await _note_end(self._process, self._link)
                raise anyio.BrokenResourceError from None

    async def aclose(self) -> None:
        self._closed = True
        if self._process.stdin is not None:
            with suppress(OSError, anyio.ClosedResourceError, anyio.BrokenResourceError):
                await self._process.stdin.aclose()


async def _message(line: bytes | TooLong) -> SessionMessage | None:
    """Return the message in a line; None for what is none (many servers print a banner first)."""
    if isinstance(line, TooLong):
        log.warning("mcp message too long", size_bytes=line.length)
        if (request_id := line.request_id()) is None:
            return None
        told = f"the answer of {line.length} bytes is larger than {MAX_MESSAGE_BYTES} and was dropped"
        return SessionMessage(
            JSONRPCError(jsonrpc="2.0", id=request_id, error=ErrorData(code=INTERNAL_ERROR, message=told))
        )
    if not line.strip():
        return None
    try:
        if len(line) > _IN_THREAD_BYTES:
            return SessionMessage(await to_thread.run_sync(_parse, line))
        return SessionMessage(_parse(line))
    except ValueError:
        log.debug("mcp line is no message", line=display(decode(line[:STDERR_LINE_BYTES]), 500))
        return None


def _parse(line: bytes):  # type: ignore[no-untyped-def]  # noqa: ANN202  # the SDK's union of messages
    return jsonrpc_message_adapter.validate_json(line, by_name=False)


def _how_it_ended(process: Process) -> str:
    code = process.returncode
    if code is None:
        return "it closed its output"
    return f"it was ended by signal {-code}" if code < 0 else f"it ended with exit code {code}"


async def _drain(stderr: ByteReceiveStream | None, settings: ServerSettings, place: Place, link: Link) -> None:
    """Read stderr to its end, so that the server never stands still; the first lines go to the log."""
    lines, logged = Lines(STDERR_LINE_BYTES), 0
    while stderr is not None:
        try:
            chunk = await stderr.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            return
        for line in lines.feed(chunk):
            text = decode(line.head if isinstance(line, TooLong) else line)
            shown = display(place.secrets.mask_text(text), 1000)
            link.last_words.append(display(shown, 200))
            logged += 1
            if logged <= STDERR_LINES:
                log.debug("mcp server stderr", server=settings.name, line=shown)


async def _watch(process: Process, link: Link) -> None:
    """Note the server's death, even where something that it started still holds its output open."""
    await process.wait()
    await anyio.sleep(LAST_OUTPUT_S)  # what it said last is read first; mostly its end is seen there
    link.end(_how_it_ended(process))


async def _note_end(process: Process, link: Link) -> None:
    """Note that a pipe is broken, with the exit code where there is one in a moment."""
    with anyio.move_on_after(EXIT_CODE_S):
        await process.wait()
    link.end(_how_it_ended(process))


async def _end(process: Process) -> None:
    for number, grace_s in ((None, STDIN_GRACE_S), (signal.SIGTERM, TERM_GRACE_S), (signal.SIGKILL, KILL_GRACE_S)):
        if number is not None:
            _signal_group(process.pid, number)
            _signal_group(process.pid, signal.SIGCONT)
        with anyio.move_on_after(grace_s):
            await process.wait()
            break
    # What the server started and left behind goes with it. Its group exists as long as one of them lives.
    _signal_group(process.pid, signal.SIGTERM)
    with anyio.move_on_after(GROUP_GRACE_S):
        while _signal_group(process.pid, 0):  # noqa: ASYNC110  # nobody tells when a group is empty
            await anyio.sleep(_POLL_S)
    _signal_group(process.pid, signal.SIGKILL)
    if process.returncode is None:
        log.warning("mcp server does not die", pid=process.pid)
    else:
        await process.aclose()


def _signal_group(group: int, number: int) -> bool:
    """Signal the process group that the server leads; False where nobody is left in it."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
