"""A daemon's life on real files and processes, whose models answer from one script and are held to the rules."""

import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from onward.config.settings import Settings
from onward.core.conversation import ProviderMessage
from onward.native.models.scripted import ScriptedModel
from onward.native.tools.registry import builtin_tools
from onward.ports.model import Model, ModelRequest, ModelTurn
from onward.processes import LauncherSpawner
from onward.recovery.recover import Claimant
from onward.store.clock import SystemClock
from onward.supervisor.supervisor import Supervisor
from tests.specimens.writing import BOOT
from tests.store.worlds import store_at
from tests.support import eventually


@dataclass
class Models:
    """One script for all: whatever is asked gets the answer that ends the run. Each request is held to the rules."""

    script: Path
    requests: list[list[ProviderMessage]] = field(default_factory=list)

    def check(self, name: str | None, fallback: Sequence[str] = ()) -> str:
        return name or ""

    def configure(self, settings: Settings) -> None:
        pass

    async def load(self, name: str) -> Model:
        return await anyio.to_thread.run_sync(Strict, self)


class Strict(ScriptedModel):
    def __init__(self, models: Models) -> None:
        super().__init__(models.script, SystemClock())
        self._models = models

    async def infer(self, request: ModelRequest, on_delta: Callable[[str], None] | None = None) -> ModelTurn:
        self._models.requests.append(list(request.messages))
        return await super().infer(request, on_delta)


@asynccontextmanager
async def serving(runs: Path, models: Models) -> AsyncIterator[Supervisor]:
    """A daemon's life on real files and processes, in the boot in which most specimens were interrupted."""
    async with store_at(runs) as store:
        supervisor = Supervisor(
            store=store,
            spawner=LauncherSpawner(),
            tools=dict(builtin_tools()),
            models=models,
            clock=SystemClock(),
            claimant=Claimant(machine_id="machine", runs_inode=7, boot_id=BOOT, pid=os.getpid(), start_ticks=1),
            agent_dirs=[],
        )
        await supervisor.boot()
        with supervisor._admission._queue, supervisor._admission._queued:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(supervisor.serve)
                yield supervisor
                tasks.cancel_scope.cancel()


async def gone_on(runs: Path, name: str, status: str, models: Models) -> None:
    """Let a daemon go on with the run until it has this status and rests."""
    async with serving(runs, models) as supervisor:
        entry = supervisor._entries[name]

        def rests() -> bool:
            return entry.loaded is None and not entry.queued and entry.shown()["status"] == status

        try:
            await eventually(rests, 30)
        except AssertionError:
            raise AssertionError(f"{name} is {entry.shown()}") from None
