"""Carrying out a recovery plan while people go on talking to the run."""

from dataclasses import asdict
from pathlib import Path

import anyio
import anyio.lowlevel

from onward.core.plan import Verdict
from onward.core.records import AssistantTurn, InferenceStarted, MessageAdded, RunClaimed, RunPaused
from onward.core.status import Status
from onward.core.vocabulary import Source
from onward.ports.store import Beside
from onward.recovery.recover import Claimant, recover
from onward.supervisor.live import LiveRun
from tests.native.loops import RUN, Loop


def claim(live: LiveRun) -> RunClaimed:
    return RunClaimed(**asdict(HERE), epoch=live.state.claims + 1)


HERE = Claimant(machine_id="a machine", runs_inode=1, boot_id="boot", pid=7, start_ticks=8)


async def test_what_is_said_while_the_missing_end_is_written_keeps_the_run_going(tmp_path: Path) -> None:
    """The last turn ended the run, its daemon died before RunEnded; a long result is written in two steps."""
    loop = Loop(tmp_path, [])
    await loop.start()
    live = LiveRun(await loop.store.open(RUN), loop.store, loop.clock, lambda: None)
    words = [{"type": "text", "text": "\x01" * 40_000}]
    await live.append(
        AssistantTurn(
            turn=1, seen=1, content=words, stop_reason="end_turn", usage={}, cost_usd=0.0, provider="p", model="m",
            active_s=0.0,
        )
    )  # fmt: skip
    said = MessageAdded(message_id="m1", source=Source.HUMAN, content="wait", by="me")
    verdicts: list[Verdict] = []

    async def recovers() -> None:
        nothing = Beside(index_seq=None, call_dirs=())
        verdicts.append((await recover(live, loop.store, loop.processes, HERE, nothing)).verdict)

    async def says() -> None:
        while live.state.claim is None:
            await anyio.lowlevel.checkpoint()
        await live.append(said)

    async with anyio.create_task_group() as both:
        both.start_soon(recovers)
        both.start_soon(says)
    assert (verdicts, await loop.types()) == (
        [Verdict.ENTER],
        ["RunStarted", "AssistantTurn", "RunClaimed", "MessageAdded"],
    )
    await live.close()


async def test_a_pause_that_is_acknowledged_while_the_run_is_recovered_holds(tmp_path: Path) -> None:
    """The disk is full: the pause comes to it before the claim of the daemon does."""
    loop = Loop(tmp_path, [])
    await loop.start()
    live = LiveRun(await loop.store.open(RUN), loop.store, loop.clock, lambda: None)
    asked = InferenceStarted(attempt=1, provider="p", model="m", active_s=0.0)
    await live.append(claim(live), asked)
    loop.store.full = True
    async with anyio.create_task_group() as both:
        both.start_soon(live.append, RunPaused(by="me", reason="wait"))
        await loop.until(lambda: live.stalled is not None)
        both.start_soon(recover, live, loop.store, loop.processes, HERE, Beside(index_seq=None, call_dirs=()))
        await anyio.wait_all_tasks_blocked()
        loop.store.full = False
        loop.clock.advance(60)
    assert await loop.types() == ["RunStarted", "RunClaimed", "InferenceStarted", "RunPaused", "RunClaimed"]
    assert live.state.status is Status.PAUSED
    await live.close()
