"""W1, throughput: steps of one model turn (1 KiB, 2 calls) and two instant tools (2 KiB each), against the yardstick.

Onward runs as in production, but for the model and the tool: the file store, the supervisor and its worker, the native
loop. The last call of the last step ends the run, as the yardstick's runs end after their last step.
"""

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from bench.common import CALLS, TURN_TEXTS, Effects, Json, Meter, Moment, by_turns, median, now, ratio, row, show
from bench.yardstick import report
from onward.config.settings import Settings
from onward.core.vocabulary import Effect
from onward.ports.model import ModelRequest, ModelTurn
from onward.ports.operations import StartRequest
from onward.ports.tool import ToolContext, ToolResult, ToolSpec
from onward.processes import LauncherSpawner
from onward.processes.identity import boot_id, start_ticks
from onward.recovery.recover import Claimant
from onward.store.clock import SystemClock
from onward.store.filestore import FileStore, open_store
from onward.store.lock import this_process
from onward.supervisor import logs
from onward.supervisor.collector import collect_seldom
from onward.supervisor.supervisor import Supervisor

TOOL = "read_file"
"""A name that a definition may hold; what it does here is ours."""


class Model:
    """Answers every request with the same shape of turn, at once."""

    provider, name, window_tokens = "bench", "bench", None

    def __init__(self) -> None:
        self.stamps: list[Moment] = []

    def estimate(self, request: ModelRequest) -> dict[str, float]:
        return {}

    async def infer(self, request: ModelRequest, on_delta: Callable[[str], None] | None = None) -> ModelTurn:
        self.stamps.append(now())
        step = request.turns
        asked = [
            {"type": "tool_use", "id": f"call_{step}_{n}", "name": TOOL, "input": {"step": step, "position": n}}
            for n in range(CALLS)
        ]
        text = {"type": "text", "text": TURN_TEXTS[step % 8]}
        return ModelTurn(content=[text, *asked], stop_reason="tool_use", usage={"input_tokens": 9, "output_tokens": 9})


@dataclass(slots=True)
class Models:
    """Every name is the one model."""

    model: Model

    def check(self, name: str | None, fallback: Sequence[str] = ()) -> str:
        return name or "bench"

    def configure(self, settings: Settings) -> None:
        pass

    async def load(self, name: str) -> Model:
        return self.model


class Tool:
    """Appends a line to a file and returns 2 KiB; the last call of the last step ends the run."""

    spec = ToolSpec(name=TOOL, description="Works.", parameters={"type": "object"}, effect=Effect.READ)

    def __init__(self, effects: Effects, agents: int, steps: int) -> None:
        self._effects, self._steps, self._going = effects, steps, agents
        self.ended = anyio.Event()

    async def call(self, context: ToolContext, arguments: Json) -> ToolResult:
        step, position = arguments["step"], arguments["position"]
        text = self._effects.add(context.run_id, step, position)
        if (step, position) != (self._steps - 1, CALLS - 1):
            return ToolResult(text=text)
        self._going -= 1
        if self._going == 0:
            self.ended.set()
        return ToolResult(text=text, ends_run="completed")


async def opened(root: Path) -> tuple[FileStore, Claimant]:
    """Open the runs directory below `root` as the daemon does."""
    holder = this_process(boot_id(), start_ticks(os.getpid()) or 0)
    store = await open_store(root / "runs", SystemClock(), holder, lock_wait_s=0)
    claimant = Claimant(
        machine_id=store.machine_id,
        runs_inode=store.runs_inode,
        boot_id=holder.boot_id,
        pid=holder.pid,
        start_ticks=holder.start_ticks,
    )
    return store, claimant


def supervised(root: Path, store: FileStore, claimant: Claimant, model: Model, tools: dict[str, Any]) -> Supervisor:
    """Return a supervisor as the daemon has it."""
    logs.configure("warning", "json")
    return Supervisor(
        store=store,
        spawner=LauncherSpawner(),
        tools=tools,
        models=Models(model),
        clock=SystemClock(),
        claimant=claimant,
        agent_dirs=[root / "agents"],
        default_agent="bench",
    )


def define_agent(root: Path) -> None:
    agents = root / "agents"
    agents.mkdir(mode=0o700)
    (agents / "bench.toml").write_text(f'tools = ["{TOOL}"]\nsystem_prompt = "{"x" * 800}"\n')


async def w1(root: Path, agents: int, steps: int) -> Json:
    define_agent(root)
    store, claimant = await opened(root)
    model, tool = Model(), Tool(Effects(root), agents, steps)
    supervisor = supervised(root, store, claimant, model, {TOOL: tool})
    await supervisor.boot()
    collect_seldom()
    request = StartRequest(task="x" * 800, workspace=str(root), by="bench")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(supervisor.serve)
        flushes, meter = store.flushes, Meter()
        for _ in range(agents):
            tasks.start_soon(supervisor.start_run, request)
        await tool.ended.wait()
        while await supervisor.list_runs(frozenset({"active", "waiting"})):  # noqa: ASYNC110  # the last few flushes
            await anyio.sleep(0.001)
        model.stamps.append(now())
        used, flushes = meter.stop(), store.flushes - flushes
        await supervisor.stop(leave_running=True)
    assert len(await supervisor.list_runs(frozenset({"completed"}))) == agents
    await store.close()
    return report(used, agents * steps, flushes, model.stamps if agents == 1 else [])


def main(rounds: int = 5) -> None:
    one = by_turns(rounds, onward=("w1", "run", 1, 200), yardstick=("yardstick", "w1", 1, 200))
    many = by_turns(rounds, onward=("w1", "run", 50, 20), yardstick=("yardstick", "w1", 50, 20))
    long = by_turns(max(1, rounds // 2), onward=("w1", "run", 1, 1000), yardstick=("yardstick", "w1", 1, 1000))
    for shape, found in (("one agent", one), ("50 agents", many), ("1,000 steps", long)):
        for name, results in found.items():
            show(w1=shape, of=name, **{member: median(results, member) for member in results[0]})
            show(w1=shape, of=name, best_steps_s=max(result["steps_s"] for result in results))
    for shape, found, least, most in (("one agent", one, 0.5, 1.05), ("50 agents", many, 0.4, 1.1)):
        times, lowest, highest = ratio(found["onward"], found["yardstick"], "steps_s")
        row(f"{shape}: steps/s, x R", times, at_least=least, lowest=lowest, highest=highest)
        row(f"{shape}: processor time a step, x R", ratio(found["onward"], found["yardstick"], "cpu_ms_per_step")[0])
        row(f"{shape}: flushes per step", median(found["onward"], "flushes_per_step"), at_most=most)
    row("KiB written per step, 200 steps", median(one["onward"], "kib_per_step"), at_most=7)
    row("ms/step at 951-1,000, x that at 1-50", median(long["onward"], "growth"), at_most=1.1)
    row("the same, processor time of the loop", median(long["onward"], "cpu_growth"))
    row("RSS after 1,000 steps, MiB", median(long["onward"], "rss_mib"))


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"]:
        show(**anyio.run(w1, Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])))
    else:
        main(*map(int, sys.argv[1:]))
