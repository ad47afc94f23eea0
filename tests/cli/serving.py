"""The real command line against a fake daemon that is served on a real socket."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import anyio
from anyio.abc import TaskStatus
from anyio.from_thread import BlockingPortal, start_blocking_portal

from onward.api.app import make_app
from onward.api.server import serve
from onward.core.records import Record
from onward.ports.operations import StartRequest
from onward.testing.fake_operations import FakeOperations

T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class Daemon:
    """A fake daemon in a thread; `operations` is only touched on its loop, through `call`."""

    socket: Path
    portal: BlockingPortal
    operations: FakeOperations
    shutdown: anyio.Event

    def call(self, function: Callable[..., T], *args: Any) -> T:
        return self.portal.call(function, *args)

    def start(self, task: str = "do it", *, agent: str | None = None, **members: Any) -> str:
        async def start() -> str:
            request = StartRequest(task=task, workspace="/tmp", by="test", agent=agent, **members)
            return str((await self.operations.start_run(request))[0]["run_id"])

        return self.portal.call(start)

    def append(self, run_id: str, *records: Record) -> None:
        for record in records:
            self.portal.call(self.operations.append, run_id, record)


@contextmanager
def serving(socket: Path, operations: FakeOperations, heartbeat_s: float = 15.0) -> Iterator[Daemon]:
    """Serve at `socket` as long as the block lasts; clients that are connected then lose it."""
    with start_blocking_portal() as portal:
        shutdown = portal.call(anyio.Event)
        app = make_app(operations, shutdown=shutdown, heartbeat_s=heartbeat_s)

        async def run(*, task_status: TaskStatus[None]) -> None:
            await serve(app, socket, on_ready=task_status.started, shutdown=shutdown)

        served, _ = portal.start_task(run)
        try:
            yield Daemon(socket=socket, portal=portal, operations=operations, shutdown=shutdown)
        finally:
            portal.call(shutdown.set)
            served.result(30)


@dataclass(frozen=True, slots=True)
class Cli:
    """Runs `onward` in a process of its own, as a person without settings, in the directory `home`."""

    home: Path
    socket: Path

    def environment(self, **changes: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("ONWARD_", "XDG_", "NO_"))}
        return {**kept, "ONWARD_HOME": str(self.home), "ONWARD_SOCKET": str(self.socket), **changes}

    def __call__(self, *args: str, **changes: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            self.argv(*args),
            capture_output=True,
            text=True,
            timeout=60,
            env=self.environment(**changes),
            cwd=self.home,
        )

    def start(self, *args: str, **changes: str) -> "subprocess.Popen[str]":
        env = self.environment(**changes)
        pipe = subprocess.PIPE
        return subprocess.Popen(self.argv(*args), stdout=pipe, stderr=pipe, text=True, env=env, cwd=self.home)

    def argv(self, *args: str) -> list[str]:
        return [sys.executable, "-m", "onward", *args]
