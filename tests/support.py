"""Waiting for conditions (never a bare sleep, always a deadline), the state of a process, HTTP over a Unix socket."""

import http.client
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import anyio
from anyio import to_thread

from onward.processes.launcher_kernel import read_small

T = TypeVar("T")

PATIENCE_S = 60.0
"""Nothing takes as long, on a machine that has a dozen other things to do either; only what fails waits for it."""


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket, without anything of ours."""

    def __init__(self, path: Path, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = str(path)

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def state_of(pid: int) -> str:
    """Return the state letter of a process (proc(5)); empty when there is none."""
    return read_small(f"/proc/{pid}/stat").rpartition(b") ")[2][:1].decode()


def until(condition: Callable[[], T], timeout_s: float = PATIENCE_S) -> T:
    """Return the first true value of `condition`; fails when none comes in time."""
    end = time.monotonic() + timeout_s
    while True:
        if value := condition():
            return value
        assert time.monotonic() < end, f"not within {timeout_s} s: {condition}"
        time.sleep(0.01)


async def eventually(condition: Callable[[], T], timeout_s: float = PATIENCE_S) -> T:
    """Return the first true value of `condition`, asked in a thread while other tasks run; fails when none comes."""
    end = time.monotonic() + timeout_s
    while True:
        if value := await to_thread.run_sync(condition):
            return value
        assert time.monotonic() < end, f"not within {timeout_s} s: {condition}"
        await anyio.sleep(0.01)
