"""The servers of one run, in a directory of the test's own."""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onward.config.mcp import McpServer
from onward.core.masking import KnownSecrets
from onward.native.mcp.place import Place
from onward.native.mcp.tools import mcp_tools
from onward.ports.tool import Tool, ToolContext, ToolResult
from onward.processes import LauncherSpawner
from onward.store.clock import SystemClock

ROOT = Path(__file__).parents[3]
RUN_ID = "worker-01890000-00000000"


def server_argv(server: str, top: Path, *more: str) -> list[str]:
    """What starts one of the servers beside this file."""
    start = f"import sys; sys.path[:0] = [{str(ROOT)!r}]; from tests.native.mcp import {server}; {server}.main()"
    return [sys.executable, "-c", start, str(top), *more]


@dataclass
class McpWorld:
    """What a run has: a workspace, an environment, and the tools of its servers while `entered`."""

    top: Path
    environment: dict[str, str] = field(default_factory=lambda: {"PATH": os.environ["PATH"]})
    secrets: KnownSecrets = field(default_factory=KnownSecrets)
    tools: dict[str, Tool] = field(default_factory=dict)

    def place(self) -> Place:
        return Place(
            instance="an instance of the tests",
            run_id=RUN_ID,
            workspace=self.top,
            environment=self.environment,
            secrets=self.secrets,
            clock=SystemClock(),
        )

    def command(self, server: str = "plain", **more: Any) -> dict[str, Any]:
        """The definition of a server of ours as a command: `plain`, or with the SDK `served`."""
        return {"command": server_argv(server, self.top), **more}

    @asynccontextmanager
    async def entered(self, **servers: dict[str, Any]) -> AsyncIterator["McpWorld"]:
        pinned = {name: McpServer.model_validate(table).model_dump(mode="json") for name, table in servers.items()}
        async with mcp_tools({"mcp": pinned}, self.place()) as self.tools:
            yield self

    async def call(self, tool: str, arguments: dict[str, Any] | None = None, deadline_s: float = 60) -> ToolResult:
        context = ToolContext(
            run_id=RUN_ID,
            call_id="t1c1",
            workspace=self.top,
            calls_dir=self.top / "calls",
            runs_lock=self.top / ".lock",
            spawner=LauncherSpawner(),
            env={},
            deadline_s=deadline_s,
        )
        return await self.tools[f"mcp__own__{tool}"].call(context, arguments or {})

    def effects(self) -> list[str]:
        """What servers did, without their starts."""
        return [line for line in self._lines() if not line.startswith("started ")]

    def pids(self) -> list[int]:
        """The processes of servers, in the order of their starts."""
        return [int(line.partition(" ")[2]) for line in self._lines() if line.startswith("started ")]

    def _lines(self) -> list[str]:
        file = self.top / "effects"
        return file.read_text().splitlines() if file.exists() else []
