"""The native loop: what it journals before it acts, when it stops, and what it does while it cannot go on."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from onward.core.times import seconds_between
from onward.core.vocabulary import Needs
from onward.ports.model import FailureClass, ModelFailure
from onward.testing.fake_processes import FakeCommand
from tests.native.loops import Loop, asks, call, shell, waiting

Json = dict[str, Any]


async def test_a_run_asks_acts_and_ends_and_each_intent_stands_before_its_effect(tmp_path: Path) -> None:
    loop = Loop(tmp_path, [asks(shell("true")), {"text": "done"}])
    records = await loop.carried_on()
    assert [record["type"] for record in records] == [
        "RunStarted",
        "InferenceStarted",
        "AssistantTurn",
        "ToolBatch",
        "ToolCallStarted",
        "ToolCallDone",
        "InferenceStarted",
        "AssistantTurn",
        "RunEnded",
    ]
    assert (records[-1]["status"], records[-1]["result"]) == ("completed", "done")
    assert [spec.argv[2] for spec in loop.processes.launched] == ["true"]


async def test_finish_ends_the_run_with_what_it_says(tmp_path: Path) -> None:
    loop = Loop(tmp_path, [asks(call("finish", result="could not", status="failed")), {"text": "never asked"}])
    ended = (await loop.carried_on())[-1]
    assert (ended["type"], ended["status"], ended["reason"], ended["result"]) == (
        "RunEnded", "failed", "finish", "could not",
    )  # fmt: skip
    assert loop.live.state.turns == 1


@pytest.mark.parametrize(
    ("limits", "turns"), [({"turns": 2}, 2), ({"tool_calls": 3}, 3), ({"turns": 2, "tool_calls": 1}, 1)]
)
async def test_a_budget_that_is_used_up_parks_the_run_after_its_calls_have_ended(
    tmp_path: Path, limits: Json, turns: int
) -> None:
    loop = Loop(tmp_path, [asks(shell("true"), repeat=9)], limits)
    parked = (await loop.carried_on())[-1]
    assert (parked["type"], parked["needs"]) == ("RunParked", "budget")
    assert (loop.live.state.turns, len(loop.processes.launched)) == (turns, turns)
    assert loop.live.state.open_calls == []


async def test_active_time_is_a_budget_and_waiting_for_a_retry_does_not_use_it(tmp_path: Path) -> None:
    turns = [asks(shell("a"), delay_s=40), asks(shell("b"), delay_s=40, fail="network"), asks(shell("c"), delay_s=40)]
    loop = Loop(tmp_path, turns, {"active_s": 100})
    await loop.start()
    async with anyio.create_task_group() as tasks:
        await loop.begin(tasks)
        while not loop.over:
            await loop.until(lambda: loop.clock.sleepers or loop.over)
            loop.clock.advance(0 if loop.over else 10)
    parked = (await loop.records("RunParked"))[0]
    assert (parked["needs"], loop.live.state.turns) == ("budget", 3)
    assert "active_s" in parked["reason"]
    assert 120 <= loop.run.active_s() < 130
    assert loop.clock.monotonic() >= 121


async def test_a_failed_request_is_repeated_after_its_backoff_without_a_slot(tmp_path: Path) -> None:
    loop = Loop(tmp_path, [{"text": "at last", "fail": "overloaded", "fail_times": 3}])
    await loop.start()
    async with anyio.create_task_group() as tasks:
        await loop.begin(tasks)
        for failures in (1, 2, 3):
            await loop.until(partial(_gave_up_its_slot, loop, failures))
            loop.clock.advance(_delay_s((await loop.records("InferenceFailed"))[-1]))
    delays = [_delay_s(record) for record in await loop.records("InferenceFailed")]
    assert len(delays) == 3
    assert all(5 * 2**at / 2 <= delay <= 5 * 2**at for at, delay in enumerate(delays)), delays
    assert (loop.idle, (await loop.types())[-1]) == (0, "RunEnded")


def _delay_s(failed: Json) -> float:
    return seconds_between(failed["ts"], failed["retry_at"])


def _gave_up_its_slot(loop: Loop, failures: int) -> bool:
    return (loop.live.state.failures, loop.idle, loop.clock.sleepers) == (failures, 1, 1)


async def test_what_the_provider_asked_for_is_waited_for(tmp_path: Path) -> None:
    loop = Loop(tmp_path, [{"text": "done"}])
    await loop.start()
    load, asked = loop._load_model, 0

    class Limited:
        provider, name, window_tokens = "scripted", "script", None

        def estimate(self, _request: object) -> dict[str, float]:
            return {}

        async def infer(self, request: Any, on_delta: Any = None) -> Any:
            nonlocal asked
            asked += 1
            if asked == 1:
                raise ModelFailure(FailureClass.RATE_LIMITED, "429", retry_after_s=77.0)
            return await (await load("")).infer(request)

    async def limited(_name: str) -> Any:
        return Limited()

    loop._load_model = limited  # type: ignore[method-assign]
    async with anyio.create_task_group() as tasks:
        await loop.begin(tasks)
        await loop.until(lambda: loop.clock.sleepers == 1)
        loop.clock.advance(76)
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        assert asked == 1
        loop.clock.advance(1)
    assert asked == 2
    assert (await loop.types())[-1] == "RunEnded"


async def test_a_failure_that_no_repetition_heals_parks_the_run(tmp_path: Path) -> None:
    loop = Loop(tmp_path, [{"text": "x", "fail": "context_overflow"}])
    records = await loop.carried_on()
    assert [record["type"] for record in records[-2:]] == ["InferenceFailed", "RunParked"]
    assert records[-1]["needs"] == Needs.DECISION


async def test_calls_that_make_no_sense_are_answered_and_never_carried_out(tmp_path: Path) -> None:
    calls = [
        {"name": "shell", "arguments": '{"command": "touch x'},
        call("no_such_tool", path="x"),
        {"name": "", "arguments": {}},
        call("shell", wrong="touch x"),
        call("shell", command=5),
    ]
    loop = Loop(tmp_path, [asks(*calls), {"text": "sorry"}])
    records = await loop.carried_on()
    done = [record for record in records if record["type"] == "ToolCallDone"]
    assert [record["call_id"] for record in done] == [f"t1c{number}" for number in range(1, 6)]
    assert all(record["is_error"] and record["outcome"] == "error" for record in done)
    assert "touch x" in done[0]["result"]
    assert "no_such_tool" in done[1]["result"]
    assert loop.processes.launched == []
    assert records[-1]["type"] == "RunEnded"


async def test_reads_start_together_and_a_write_waits_for_all_before_it(tmp_path: Path) -> None:
    read = call("list_files", path=".")
    loop = Loop(tmp_path, [asks(read, read, shell("a"), read, shell("b"), read), {"text": "done"}])
    records = await loop.carried_on()
    order = [
        (record["type"].removeprefix("ToolCall"), record["call_id"][2:])
        for record in records
        if record["type"] in ("ToolCallStarted", "ToolCallDone")
    ]
    assert order[:2] == [("Started", "c1"), ("Started", "c2")]
    for at, (act, name) in enumerate(order):
        if (act, name) in (("Started", "c3"), ("Started", "c5")):
            before = [f"c{number}" for number in range(1, int(name[1:]))]
            assert sorted(call for done, call in order[:at] if done == "Done") == before
    assert order.index(("Done", "c3")) < order.index(("Started", "c4"))
    assert [spec.argv[2] for spec in loop.processes.launched] == ["a", "b"]


async def test_no_more_calls_run_side_by_side_than_there_are_workers(tmp_path: Path) -> None:
    loop = Loop(tmp_path, [asks(*[call("list_files", path=".")] * 20), {"text": "done"}])
    running = most = 0
    for record in await loop.carried_on():
        running += {"ToolCallStarted": 1, "ToolCallDone": -1}.get(record["type"], 0)
        most = max(most, running)
    assert (running, most) == (0, 8)


async def test_a_message_that_comes_during_the_last_request_keeps_the_run_going(tmp_path: Path) -> None:
    loop = Loop(tmp_path, [{"text": "done", "delay_s": 5}, {"text": "that too"}])
    await loop.start()
    async with anyio.create_task_group() as tasks:
        await loop.begin(tasks)
        await loop.until(lambda: loop.clock.sleepers == 1)
        await loop.say("also this", "m1")
        loop.clock.advance(5)
    ended = (await loop.records())[-1]
    assert (ended["type"], ended["result"], loop.live.state.turns) == ("RunEnded", "that too", 2)


async def test_a_message_that_comes_while_tools_run_stands_below_their_results(tmp_path: Path) -> None:
    loop = Loop(tmp_path, [asks(shell("slow")), [{"when": "hurry", "text": "heard"}, {"text": "not heard"}]])
    loop.processes.commands = waiting
    await loop.start()
    async with anyio.create_task_group() as tasks:
        await loop.begin(tasks)
        await loop.until(lambda: len(loop.processes.launched) == 1)
        await loop.say("hurry", "m1")
        loop.processes.finish(loop.processes.launched[0].call_dir)
    messages = loop.live.state.conversation.request("scripted", "script")
    assert [block["type"] for block in messages[2]["content"]] == ["tool_result", "text"]
    assert (await loop.records())[-1]["result"] == "heard"


async def test_an_answer_that_was_cut_short_does_not_end_the_run(tmp_path: Path) -> None:
    loop = Loop(tmp_path, [{"text": "half", "stop_reason": "length"}, {"text": "whole"}])
    assert (await loop.carried_on())[-1]["result"] == "whole"


async def test_a_call_that_cannot_be_started_is_an_error_that_says_so(tmp_path: Path) -> None:
    loop = Loop(tmp_path, [asks(shell("a")), {"text": "done"}])
    loop.processes.commands = lambda _spec: FakeCommand(error=OSError(11, "Resource temporarily unavailable"))
    (done,) = [record for record in await loop.carried_on() if record["type"] == "ToolCallDone"]
    assert (done["outcome"], "nothing was done" in done["result"]) == ("error", True)


async def test_a_large_output_is_kept_whole_beside_the_journal(tmp_path: Path) -> None:
    loop = Loop(tmp_path, [asks(shell("seq")), {"text": "done"}])
    loop.processes.commands = lambda _spec: FakeCommand(stdout=b"0123456789\n" * 20_000)
    (done,) = [record for record in await loop.carried_on() if record["type"] == "ToolCallDone"]
    assert len(done["result"].encode()) <= 64 * 1024
    kept = loop.store.runs["worker-1"].blobs[done["output_blob"]]
    assert len(kept) > len(done["result"])


@dataclass
class Breaking:
    """A model whose every answer breaks off, at a price."""

    asked: int = 0
    provider, name, window_tokens = "scripted", "script", None
    price: float | None = 0.25

    def estimate(self, _request: object) -> dict[str, float]:
        return {"tokens": 1000} | ({} if self.price is None else {"cost_usd": self.price})

    async def infer(self, _request: object, _on_delta: object = None) -> Any:
        self.asked += 1
        raise ModelFailure(FailureClass.NETWORK, "it broke off", charged=True)


def breaking(loop: Loop) -> Breaking:
    model = Breaking()

    async def load(_name: str) -> Any:
        return model

    loop._load_model = load  # type: ignore[method-assign]
    return model


async def test_requests_that_break_off_are_charged_until_the_budget_is_spent(tmp_path: Path) -> None:
    loop = Loop(tmp_path, [], limits={"cost_usd": 0.6})
    model = breaking(loop)
    await loop.start()
    async with anyio.create_task_group() as tasks:
        await loop.begin(tasks)
        await loop.rests(step_s=120)
    assert (model.asked, loop.live.state.totals.cost_usd, loop.live.state.needs) == (3, 0.75, Needs.BUDGET)


async def test_without_a_budget_requests_that_break_off_come_ever_more_rarely(tmp_path: Path) -> None:
    """The run leaves memory and comes back by itself: an outage of hours does not end it, nor costs a fortune."""
    loop = Loop(tmp_path, [])
    model = breaking(loop)
    await loop.start()
    async with anyio.create_task_group() as tasks:
        await loop.begin(tasks)
        await loop.rests(step_s=120)
    assert model.asked <= 10
    parked = (await loop.records())[-1]
    assert (parked["type"], parked["needs"], parked["retry_at"] > parked["ts"]) == ("RunParked", "network", True)


@pytest.mark.parametrize(("stop", "asked"), [("refusal", 1), ("length", 3)])
async def test_a_model_that_brings_nothing_is_not_asked_for_ever(tmp_path: Path, stop: str, asked: int) -> None:
    loop = Loop(tmp_path, [{"text": "x", "stop_reason": stop, "repeat": 100}])
    records = await loop.carried_on()
    assert len([record for record in records if record["type"] == "InferenceStarted"]) == asked
    assert (records[-1]["type"], records[-1]["needs"]) == ("RunParked", Needs.HUMAN)


async def test_a_limit_of_calls_bounds_a_turn_that_asks_for_more(tmp_path: Path) -> None:
    loop = Loop(tmp_path, [asks(*(shell(f"echo {n}") for n in range(4)))], limits={"tool_calls": 1})
    records = await loop.carried_on()
    assert len(loop.processes.launched) == 1
    outcomes = {r["call_id"]: r["outcome"] for r in records if r["type"] == "ToolCallDone"}
    assert outcomes == {"t1c1": "ok", "t1c2": "not_started", "t1c3": "not_started", "t1c4": "not_started"}
    assert (records[-1]["type"], records[-1]["needs"]) == ("RunParked", Needs.BUDGET)


@pytest.mark.parametrize(
    ("limits", "price", "asked"),
    [({"cost_usd": 5.0}, None, 0), ({"cost_usd": 5.0}, 0.0, 1), ({"turns": 9}, None, 1)],
    ids=["a limit that nobody can keep", "a free model", "no limit of cost"],
)
async def test_a_limit_of_cost_is_kept_by_not_asking_a_model_without_a_price(
    tmp_path: Path, limits: Json, price: float | None, asked: int
) -> None:
    """The run waits for somebody who says the price, and is told how."""
    loop = Loop(tmp_path, [], limits=limits)
    model = breaking(loop)
    model.price = price
    await loop.start()
    async with anyio.create_task_group() as tasks:
        run = await loop.begin(tasks)
        await anyio.wait_all_tasks_blocked()
        run.drain(leave_running=True)
    last = (await loop.records())[-1]
    assert (model.asked, last.get("needs")) == (asked, None if asked else Needs.HUMAN)
    assert asked or '[prices."scripted/script"]' in last["reason"]
