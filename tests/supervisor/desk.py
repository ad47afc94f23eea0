"""Supervisors one after the other on a store in memory and a clock of the test's own; and the models they ask."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import orjson
from anyio import to_thread

from onward.config.settings import Settings
from onward.core.records import Json
from onward.native.models.scripted import ScriptedModel
from onward.native.tools.registry import builtin_tools
from onward.ports.model import Model, ModelRequest, ModelTurn
from onward.ports.operations import StartRequest
from onward.recovery.recover import Claimant
from onward.supervisor.supervisor import Supervisor
from onward.testing.clocks import FakeClock
from onward.testing.fake_processes import FakeProcesses
from onward.testing.memory_store import MemoryStore
from tests.support import eventually


@dataclass(slots=True)
class Asked:
    """One request to a model, and the name that it was loaded by."""

    model: str
    tools: list[str]
    text: str


@dataclass
class Desk:
    """One home. `serving` is the life of a daemon; leaving it is a crash as far as the runs are concerned."""

    top: Path
    turns: list[Any]
    agent: str = ""
    clock: FakeClock = field(default_factory=FakeClock)
    processes: FakeProcesses = field(default_factory=FakeProcesses)
    asked: list[Asked] = field(default_factory=list)
    run_id: str = ""
    supervisor: Supervisor = field(init=False)

    def __post_init__(self) -> None:
        self.workspace = self.top / "workspace"
        for directory in (self.workspace, self.top / "calls", self.top / "agents"):
            directory.mkdir(mode=0o700)
        self.store = MemoryStore(self.clock, self.top / "calls")
        (self.top / "script").write_bytes(orjson.dumps({"turns": self.turns}))
        agent = self.top / "agents" / "asking.toml"
        agent.write_text(f'sandbox = "none"\n{self.agent}')

    def new_supervisor(self) -> Supervisor:
        self.supervisor = Supervisor(
            store=self.store,
            spawner=self.processes,
            tools=dict(builtin_tools()),
            models=self,
            clock=self.clock,
            claimant=Claimant(machine_id="m", runs_inode=1, boot_id=self.processes.boot_id, pid=1, start_ticks=1),
            agent_dirs=[self.top / "agents"],
        )
        return self.supervisor

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Supervisor]:
        supervisor = self.new_supervisor()
        await supervisor.boot()
        with anyio.fail_after(60), supervisor._admission._queue, supervisor._admission._queued:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(supervisor.serve)
                yield supervisor
                tasks.cancel_scope.cancel()
        for run in self.store.runs.values():
            if run.log is not None:
                await run.log.close()

    async def start(self, **members: Any) -> str:
        request = StartRequest(
            task="do it", workspace=str(self.workspace), by="me", agent="asking", model="scripted/usual", **members
        )
        self.run_id = (await self.supervisor.start_run(request))[0]["run_id"]
        return self.run_id

    async def answer(self, which: str = "q1", **answer: Any) -> Json:
        return await self.supervisor.answer(self.run_id, which, answer, by="anna")

    async def until(self, **shown: Any) -> Json:
        """Wait until the run is shown so."""

        def reached() -> Json | None:
            index = self.supervisor._entries[self.run_id].shown()
            return index if all(index.get(name) == value for name, value in shown.items()) else None

        shown_now = await eventually(reached)
        assert shown_now is not None
        return shown_now

    async def until_asked(self, which: str = "q1") -> Json:
        """Wait until the run rests and one question is open; returns it."""
        entry = self.supervisor._entries[self.run_id]

        def asked() -> Json | None:
            rests = entry.loaded is None and entry.shown().get("waiting_on") == "human"
            found = entry.open_questions() if rests else []
            return found[0] if [question["interaction_id"] for question in found] == [which] else None

        question = await eventually(asked)
        assert question is not None
        return question

    async def records(self, *types: str) -> list[Json]:
        found = await self.store.records(self.run_id, after=0, limit=10_000)
        return [record for record in found if not types or record["type"] in types]

    # Implements `onward.supervisor.models.Models`

    def check(self, name: str | None, fallback: Sequence[str] = ()) -> str:
        return name or "scripted/usual"

    def configure(self, settings: Settings) -> None:
        pass

    async def load(self, name: str) -> Model:
        return await anyio.to_thread.run_sync(Noting, name, self)


async def settled() -> None:
    """Let everything happen that happens without time: no task can go on, and none waits for a thread."""
    threads = to_thread.current_default_thread_limiter()
    while True:
        await anyio.wait_all_tasks_blocked()
        if not threads.borrowed_tokens:
            return


class Noting(ScriptedModel):
    """Says what the script says, and notes what it was asked."""

    def __init__(self, asked_as: str, desk: Desk) -> None:
        super().__init__(desk.top / "script", desk.clock)
        self._asked_as, self._desk = asked_as, desk

    async def infer(self, request: ModelRequest, on_delta: Callable[[str], None] | None = None) -> ModelTurn:
        tools = sorted(spec.name for spec in request.tools)
        self._desk.asked.append(Asked(self._asked_as, tools, orjson.dumps(list(request.messages)).decode()))
        return await super().infer(request, on_delta)
