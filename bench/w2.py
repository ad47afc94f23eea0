"""W2, coming back: interrupted runs folded, planned and ready, against the yardstick; memory; 10,000 runs listed.

An interrupted run has 20 steps, then a batch of 4 calls with 2 done. Ready means: folded with every check, made durable
(a new process flushes what it read before it acts on it), the evidence of open calls gathered, the recovery planned.
"""

import gc
import resource
import sys
from datetime import datetime
from pathlib import Path

import anyio
import orjson

from bench.common import CALLS, RESULT_TEXTS, TURN_TEXTS, Json, Meter, fresh_dir, measured, median, ratio, row, show
from bench.startup import daemon, ready
from bench.w1 import TOOL, Model, opened, supervised
from bench.yardstick import per_run
from onward.core import records as r
from onward.core.fold import apply
from onward.core.index import index_of
from onward.core.line import encode_body, seal
from onward.core.plan import Verdict, lost_records, plan
from onward.core.state import RunState
from onward.core.vocabulary import Effect, Needs, Outcome, SettledBy
from onward.processes import LauncherSpawner
from onward.processes.identity import boot_id
from onward.recovery.evidence import gather
from onward.recovery.recover import policy_for, recover
from onward.store.clock import SystemClock
from onward.supervisor.collector import collect_seldom
from onward.supervisor.live import LiveRun

SIDE_BY_SIDE = 50
"""Runs that come back at the same time: the default of `max_active_runs`."""

TS = "2026-01-01T00:00:00.000000Z"


def beginning(run_id: str, root: Path) -> list[r.Record]:
    return [
        r.RunStarted(
            run_id=run_id,
            kind="native",
            agent={"tools": [TOOL], "system_prompt": "x" * 800},
            agent_name="bench",
            agent_hash="0" * 64,
            task="x" * 800,
            workspace=str(root),
            limits={"max_stalled_revivals": 3},
            by="bench",
            on_restart="resume",
            version="0",
            model="bench",
        ),
        r.RunClaimed(machine_id="0" * 32, runs_inode=1, boot_id=boot_id(), pid=1, start_ticks=1, epoch=1),
    ]


def step_of(number: int, calls: int, finished: int) -> list[r.Record]:
    """The records of one step."""
    asked = [
        r.Call(
            call_id=f"t{number}c{position}",
            provider_id=f"call_{number}_{position}",
            name=TOOL,
            arguments={"step": number, "position": position},
            effect=Effect.READ,
        )
        for position in range(1, calls + 1)
    ]
    content: list[Json] = [{"type": "text", "text": TURN_TEXTS[number % 8]}]
    content += [{"type": "tool_use", "id": c.provider_id, "name": c.name, "input": c.arguments} for c in asked]
    return [
        r.InferenceStarted(attempt=1, provider="bench", model="bench", active_s=float(number)),
        r.AssistantTurn(
            turn=number,
            seen=number,
            content=content,
            stop_reason="tool_use",
            usage={"input_tokens": 9, "output_tokens": 9},
            cost_usd=0.0,
            provider="bench",
            model="bench",
            active_s=float(number),
        ),
        r.ToolBatch(turn=number, calls=[call.to_json() for call in asked]),
        *(r.ToolCallStarted(call_id=call.call_id) for call in asked),
        *(
            r.ToolCallDone(
                call_id=call.call_id,
                outcome=Outcome.OK,
                result=RESULT_TEXTS[(number + position) % 8],
                is_error=False,
                settled_by=SettledBy.TOOL,
                duration_s=0.001,
            )
            for position, call in enumerate(asked[:finished])
        ),
    ]


def write(root: Path, run_id: str, journal: list[r.Record]) -> tuple[Path, bytes, RunState]:
    """Write a run directory; returns it, its journal and the state."""
    state, lines = RunState(), list[bytes]()
    for seq, record in enumerate(journal, 1):
        body = encode_body(record.to_json())
        lines.append(seal(seq, seq - 1, TS, body))
        apply(state, {**orjson.loads(body), "seq": seq, "ts": TS})
    directory = root / "runs" / run_id
    directory.mkdir(mode=0o700, parents=True)
    data = b"".join(lines)
    (directory / "journal.jsonl").write_bytes(data)
    return directory, data, state


def write_index(directory: Path, state: RunState, seq: int, size: int) -> None:
    index = {**index_of(state), "journal": {"seq": seq, "bytes": size, "checkpoint_offset": None}}
    (directory / "meta.json").write_bytes(orjson.dumps(index, option=orjson.OPT_INDENT_2))


def build(root: Path, count: int, steps: int) -> None:
    """Make interrupted runs, each with the index that it had a few records before."""
    for number in range(count):
        run_id = f"bench-{number:06}"
        journal = beginning(run_id, root)
        for step in range(1, steps + 1):
            journal += step_of(step, CALLS, CALLS)
        directory, data, state = write(root, run_id, journal + step_of(steps + 1, 4, 2))
        write_index(directory, state, state.seq - 3, len(data) - 3000)


async def come_back(root: Path, *, writing: bool) -> Json:
    """Make every run below `root` ready (`writing`: write down what was planned, too) and keep it."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard := resource.getrlimit(resource.RLIMIT_NOFILE)[1], hard))
    store, claimant = await opened(root)
    spawner, clock, kept = LauncherSpawner(), SystemClock(), list[LiveRun]()
    at_once = anyio.Semaphore(SIDE_BY_SIDE)

    async def enter(run_id: str) -> None:
        async with at_once:
            run_log = await store.open(run_id)
            live, beside = LiveRun(run_log, store, clock, lambda: None), run_log.beside
            if writing:
                decided = await recover(live, store, spawner, claimant, beside)
            else:
                evidence = await gather(live.state, store, spawner, beside.call_dirs)
                loss = lost_records(live.state, beside.call_dirs, beside.index_seq)
                decided = plan(live.state, evidence, policy_for(live.state, claimant.boot_id), loss=loss)
            assert decided.verdict is Verdict.ENTER
            assert len(decided.settlements) == 2
            kept.append(live)

    collect_seldom()
    meter = Meter()
    async with anyio.create_task_group() as tasks:
        for listed in await store.list_runs():
            tasks.start_soon(enter, listed.run_id)
    used = meter.stop()
    for live in kept:
        await live.close()
    await store.close()
    return per_run(used, len(kept))


def build_resting(root: Path, count: int) -> None:
    """Make runs at rest: of ten, eight completed, one is paused and one parked."""
    ends: list[r.Record] = [r.RunEnded(status="completed", reason="finish", result="y" * 400)] * 8
    ends.append(r.RunPaused(by="bench", reason="for a while"))
    ends.append(r.RunParked(by="bench", reason="broken", needs=Needs.DECISION))
    for number in range(count):
        run_id = f"bench-{number:06}"
        directory, data, state = write(
            root, run_id, [*beginning(run_id, root), *step_of(1, CALLS, CALLS), ends[number % 10]]
        )
        write_index(directory, state, state.seq, len(data))


async def list_resting(root: Path) -> Json:
    """List the runs below `root` and keep what the supervisor keeps of them."""
    (root / "agents").mkdir(mode=0o700, exist_ok=True)
    store, claimant = await opened(root)
    supervisor = supervised(root, store, claimant, Model(), {})
    gc.collect()
    meter = Meter()
    await supervisor.boot()
    gc.collect()
    used = meter.stop()
    count = len(await supervisor.list_runs())
    await store.close()
    return {"list_s": used["wall_s"], "kib_per_run": used["grown_kib"] / count}


def served_after(home: Path) -> float:
    """Return the seconds from a daemon's first record (its imports are done) to its first answer."""
    with daemon(home) as process:
        answered = ready(process, home)
        facts = (home / "runs" / "daemon.jsonl").read_bytes().splitlines()
    began = [orjson.loads(fact) for fact in facts if b'"DaemonStarted"' in fact][-1]["ts"]
    return answered - datetime.fromisoformat(began).timestamp()


def main(runs: int = 1000, rounds: int = 5, many: int = 10_000) -> None:
    with fresh_dir() as ours, fresh_dir() as theirs:
        build(ours, runs, 20)
        measured("yardstick", "build", theirs, runs, 20)
        found: dict[str, list[Json]] = {"onward": [], "yardstick": []}
        for _ in range(rounds):
            found["yardstick"].append(measured("yardstick", "load", theirs, runs, 20))
            found["onward"].append(measured("w2", "plan", ours))
        written = measured("w2", "recover", ours)
    for name, results in found.items():
        show(w2=name, **{member: median(results, member) for member in results[0]})
    times, lowest, highest = ratio(found["onward"], found["yardstick"], "ms_per_run")
    row("interrupted run ready: ms", median(found["onward"], "ms_per_run"))
    row("interrupted run ready, x R", times, at_most=3, lowest=lowest, highest=highest)
    cpu = ratio(found["onward"], found["yardstick"], "cpu_ms_per_run")[0]
    row("interrupted run ready: processor time, x R", cpu)
    row("recovery written down too: ms/run", written["ms_per_run"])
    most = max(154.0, median(found["yardstick"], "kib_per_run"))
    row("loaded run, KiB", median(found["onward"], "kib_per_run"), at_most=most)
    with fresh_dir() as home:
        build_resting(home, many)
        listed = [measured("w2", "list", home) for _ in range(3)]
        served = sorted(served_after(home) for _ in range(3))[1]
    row("run at rest, KiB", median(listed, "kib_per_run"), at_most=4)
    row(f"{many:,} runs listed: s", median(listed, "list_s"))
    row(f"{many:,} runs: serving s after imports", served, at_most=1.5)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["plan", directory]:
            show(**anyio.run(lambda: come_back(Path(directory), writing=False)))
        case ["recover", directory]:
            show(**anyio.run(lambda: come_back(Path(directory), writing=True)))
        case ["list", directory]:
            show(**anyio.run(list_resting, Path(directory)))
        case numbers:
            main(*map(int, numbers))
