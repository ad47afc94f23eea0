"""The native loop without a disk, a process or a minute of waiting: everything it touches is a fake that ships."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import anyio
import orjson
from anyio import to_thread
from anyio.abc import TaskGroup

from onward.core.records import MessageAdded, RunStarted
from onward.core.vocabulary import Source
from onward.native.models.scripted import ScriptedModel
from onward.native.ports import RunPorts
from onward.native.run import NativeRun
from onward.native.tools.registry import builtin_tools
from onward.ports.model import Model
from onward.ports.process import LaunchSpec
from onward.supervisor.live import LiveRun
from onward.testing.clocks import FakeClock
from onward.testing.fake_processes import FakeCommand, FakeProcesses
from onward.testing.memory_store import MemoryStore
from tests.support import eventually

RUN = "worker-1"
MODEL = "scripted/script"

Json = dict[str, Any]


@dataclass
class Loop:
    """One run and its machine. `begin` is a daemon that takes it; another one may follow."""

    top: Path
    turns: list[Any]
    limits: Json = field(default_factory=dict)
    agent: Json = field(default_factory=lambda: {"system_prompt": "work", "tools": list(builtin_tools())})
    clock: FakeClock = field(default_factory=FakeClock)
    processes: FakeProcesses = field(default_factory=FakeProcesses)
    idle: int = 0
    """How many runs gave up their slot at the moment."""
    live: LiveRun = field(init=False)
    run: NativeRun = field(init=False)
    over: bool = False
    on_decision: Callable[[], object] = lambda: None
    """Is called whenever the loop decides what is next."""

    def __post_init__(self) -> None:
        self.workspace = self.top / "workspace"
        self.workspace.mkdir()
        (self.top / "calls").mkdir()
        self.store = MemoryStore(self.clock, self.top / "calls")
        (self.top / "script").write_bytes(orjson.dumps({"turns": self.turns}))

    async def start(self) -> None:
        await self.store.create(
            RunStarted(
                run_id=RUN, kind="native", agent=self.agent, agent_name="worker", agent_hash="h",
                task="do it", workspace=str(self.workspace), limits=self.limits, by="me", on_restart="resume",
                version="0", model=MODEL,
            )
        )  # fmt: skip

    async def begin(self, tasks: TaskGroup, adopt: tuple[str, ...] = ()) -> NativeRun:
        """Open the run and let it go."""
        self.live = LiveRun(await self.store.open(RUN), self.store, self.clock, lambda: None)
        ports = RunPorts(
            store=self.store,
            load_model=self._load_model,
            tools=builtin_tools(),
            spawner=self.processes,
            clock=self.clock,
            random=Random(1),
            idle=self._idle,
            may_expire=self._may_expire,
        )
        self.over = False
        self.run = NativeRun(self.live, ports, adopt=adopt)
        tasks.start_soon(self._drive, self.run)
        return self.run

    async def carried_on(self) -> list[Json]:
        """Start the run, carry it on until it rests, and return its records."""
        await self.start()
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                await self.begin(tasks)
        return await self.records()

    async def records(self, *types: str) -> list[Json]:
        found = await self.store.records(RUN, after=0, limit=10_000)
        return [record for record in found if not types or record["type"] in types]

    async def types(self) -> list[str]:
        return [record["type"] for record in await self.records()]

    async def say(self, text: str, message_id: str) -> None:
        await self.live.append_durably(MessageAdded(message_id=message_id, source=Source.HUMAN, content=text, by="me"))
        self.run.wake()

    async def rests(self, step_s: float) -> None:
        """Let time pass in steps until the run rests."""
        while not self.over:
            self.clock.advance(step_s)
            await anyio.wait_all_tasks_blocked()

    async def until(self, condition: Callable[[], object]) -> None:
        await eventually(condition)

    async def _drive(self, run: NativeRun) -> None:
        await run.drive()
        self.over = True

    def _may_expire(self) -> bool:
        self.on_decision()
        return True

    async def _load_model(self, _name: str) -> Model:
        return await to_thread.run_sync(partial(ScriptedModel, self.top / "script", self.clock))

    @asynccontextmanager
    async def _idle(self) -> AsyncIterator[None]:
        self.idle += 1
        try:
            yield
        finally:
            self.idle -= 1


def waiting(_spec: LaunchSpec) -> FakeCommand:
    """A command that runs until the test ends it."""
    return FakeCommand(waits=True)


def call(name: str, **arguments: Any) -> Json:
    return {"name": name, "arguments": arguments}


def shell(command: str) -> Json:
    return call("shell", command=command)


def asks(*calls: Json, **members: Any) -> Json:
    return {"calls": list(calls), **members}
