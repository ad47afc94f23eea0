"""A workspace, and a spawner without a launcher, for the tests of the tools."""

import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anyio import to_thread

from onward.ports.process import CallExit, CallTrace, EndedBy, LaunchSpec, Trace
from onward.ports.tool import Tool, ToolContext, ToolResult


@dataclass
class DirectSpawner:
    """Runs a command as a plain child; `ends` says beforehand how the next ones end instead."""

    ends: list[CallExit | None] = field(default_factory=list)
    launched: list[LaunchSpec] = field(default_factory=list)

    async def run(self, spec: LaunchSpec) -> CallExit | None:
        self.launched.append(spec)
        code = await to_thread.run_sync(self._run, spec)
        if self.ends:
            return self.ends.pop(0)
        return CallExit(code=code, ended_by=EndedBy.ITSELF, duration_s=0.0, intact=True)

    def _run(self, spec: LaunchSpec) -> int:
        with (spec.call_dir / "stdout").open("wb") as stdout, (spec.call_dir / "stderr").open("wb") as stderr:
            done = subprocess.run(
                spec.argv, cwd=spec.cwd, env=spec.env, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr
            )
        return done.returncode

    def outputs(self, call_dir: Path) -> tuple[bytes, bytes]:
        return (call_dir / "stdout").read_bytes(), (call_dir / "stderr").read_bytes()

    def probe(self, call_dir: Path) -> CallTrace:
        return CallTrace(trace=Trace.EXITED if (call_dir / "stdout").exists() else Trace.NONE)

    def fence(self, call_dir: Path) -> CallTrace:
        return self.probe(call_dir)

    async def adopt(self, call_dir: Path) -> CallExit | None:
        raise NotImplementedError

    async def end(self, call_dir: Path, *, by: EndedBy, grace_s: float = 5.0) -> None:
        raise NotImplementedError

    async def end_leftovers(self, instance: str, keep: frozenset[tuple[str, str]]) -> int:
        raise NotImplementedError


@dataclass
class World:
    """One workspace and what is needed to call a tool in it."""

    top: Path
    spawner: DirectSpawner = field(default_factory=DirectSpawner)
    deadline_s: float | None = None

    def __post_init__(self) -> None:
        self.workspace = self.top / "workspace"
        self.workspace.mkdir()
        self.call_dir = self.top / "calls" / "t1c1"
        self.call_dir.mkdir(parents=True)

    @property
    def context(self) -> ToolContext:
        return ToolContext(
            run_id="worker-1",
            call_id="t1c1",
            workspace=self.workspace,
            calls_dir=self.call_dir.parent,
            runs_lock=self.top / ".lock",
            spawner=self.spawner,
            env={"PATH": "/usr/bin:/bin", "HOME": str(self.top)},
            deadline_s=self.deadline_s,
        )

    async def call(self, tool: Tool, **arguments: Any) -> ToolResult:
        return await tool.call(self.context, arguments)

    async def refused(self, tool: Tool, **arguments: Any) -> str:
        """Call a tool that must answer with an error, and return what it says."""
        result = await self.call(tool, **arguments)
        assert result.is_error, result.text
        assert result.text.startswith("[error] ")
        return result.text

    def file(self, name: str, content: bytes | str) -> Path:
        path = self.workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def names(self) -> list[str]:
        return sorted(str(path.relative_to(self.workspace)) for path in self.workspace.rglob("*"))
