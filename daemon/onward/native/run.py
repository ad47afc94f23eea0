"""The native loop: ask the model, run the tools it asks for, repeat.

`drive` asks `core.step.next_step` what is next and carries it out: records first, then the effect. It can be killed
between any two instructions; what it does next time follows from the journal alone.
"""

import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any, Protocol

import anyio
from anyio.abc import TaskGroup

from onward.core import gates, retry, step
from onward.core.conversation import NOT_STARTED, CallState, edit_of
from onward.core.records import (
    AssistantTurn,
    DaemonDraining,
    InferenceFailed,
    InferenceStarted,
    Json,
    Record,
    RunEnded,
    RunParked,
    ToolBatch,
    ToolCallDone,
    ToolCallStarted,
)
from onward.core.state import RunState
from onward.core.status import Status
from onward.core.text import clean_json, excerpt
from onward.core.times import parse_stamp, stamp
from onward.core.vocabulary import Outcome, SettledBy
from onward.errors import StoreError
from onward.native.calls import calls_in, done, given_up, refused, tool_environment
from onward.native.tools.process_result import result_of_exit
from onward.ports.clock import Clock
from onward.ports.model import Model, ModelFailure, ModelRequest, ModelTurn
from onward.ports.process import EndedBy, ProcessSpawner, Trace
from onward.ports.store import RunStore
from onward.ports.tool import Tool, ToolContext, ToolResult
from onward.testing import faults

WORKERS = 8
RESULT_BYTES = 32 * 1024
MESSAGE_BYTES = 2000
END_GRACE_S = 10.0
DRAIN_GRACE_S = 15.0
"""Seconds that a call which may be given up still has when the run is drained."""


class Recorder(Protocol):
    """One run's journal, as the loop needs it: a full disk makes it wait, not fail."""

    @property
    def state(self) -> RunState: ...

    async def append(self, *records: Record) -> None:
        """Write and fold records; they become durable within 50 ms.

        Raises:
            StoreError: The journal is broken; open the run again.
        """
        ...

    async def append_durably(self, *records: Record) -> None:
        """Write and fold records, and wait until they are durable. Raises as `append`."""
        ...

    async def keep(self, data: bytes) -> str:
        """Keep a large output durably; returns its sha-256. Raises as `append`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPorts:
    """What a run needs from the world."""

    store: RunStore
    load_model: Callable[[str], Awaitable[Model]]
    """Gives the model of a name; a ModelFailure counts like one of a request."""
    tools: Mapping[str, Tool]
    spawner: ProcessSpawner
    clock: Clock
    random: Random
    idle: Callable[[], AbstractAsyncContextManager[None]]
    """Entered while the run waits for a timer, so that another one can work."""
    on_delta: Callable[[str], None] = lambda _text: None
    """Is told the pieces of an answer as they come, for those who watch."""
    orphan_grace_s: float = 600.0
    may_expire: Callable[[], bool] = lambda: True
    """Whether questions expire already: not while people could not answer them for a while."""


class NativeRun:
    """One run while it is active in this process."""

    def __init__(self, recorder: Recorder, ports: RunPorts, *, adopt: tuple[str, ...] = ()) -> None:
        self._recorder = recorder
        self._ports = ports
        self._adopt = adopt
        self._changed = anyio.Event()
        self._window_tokens: int | None = None
        self._draining = False
        self._end_commands: EndedBy | None = None
        self._inference: anyio.CancelScope | None = None
        self._process_scopes: dict[str, anyio.CancelScope] = {}
        self._stoppable_scopes: dict[str, anyio.CancelScope] = {}
        self._tasks: TaskGroup | None = None
        self._calls_dir = ports.store.call_dir(recorder.state.run_id, "t1c1").parent
        self._workspace = Path(recorder.state.workspace)
        self._env = tool_environment(os.environ, instance=ports.store.instance, run_id=recorder.state.run_id)
        self._active_base = recorder.state.totals.active_s
        self._active_since: float | None = ports.clock.monotonic()

    @property
    def state(self) -> RunState:
        return self._recorder.state

    def active_s(self) -> float:
        """Return the seconds that the run was active, in all its lives."""
        since = self._active_since
        return round(self._active_base + (self._ports.clock.monotonic() - since if since is not None else 0.0), 3)

    async def drive(self) -> None:
        """Carry the run on until it rests, ends, parks or is drained.

        Raises:
            StoreError: Its journal cannot be written any more; open it again.
        """
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            for call in self.state.open_calls:
                if call.call_id in self._adopt:
                    tasks.start_soon(self._adopted, call)
            while await self._step():
                pass
        # Here every call of this process has ended, or was left to the next daemon.
        if self._draining and self.state.status is Status.ACTIVE:
            await self._write_draining()

    def drain(self, *, leave_running: bool) -> None:
        """Stop at the next safe place: no new request or call; commands are left to the next daemon, or ended."""
        self._draining = True
        self._stop_now(None if leave_running else EndedBy.STOP, commands=True)

    def obey(self) -> None:
        """Follow what was just journaled: a pause drops the request that is out, a cancel ends commands too."""
        cancelled = self.state.cancel_by is not None
        if self._interrupted():
            self._stop_now(EndedBy.CANCEL if cancelled else None, commands=cancelled)
        self.wake()

    def _stop_now(self, by: EndedBy | None, *, commands: bool) -> None:
        self._end_commands = by
        if self._inference is not None:
            self._inference.cancel()
        if commands:
            for scope in list(self._process_scopes.values()):
                scope.cancel()
            for scope in self._stoppable_scopes.values():
                self._limit(scope)
        self.wake()

    def wake(self) -> None:
        """Look again at what is next: something was added to the journal, or time has passed."""
        self._changed.set()

    async def _step(self) -> bool:
        """Do the next thing; False when there is nothing more to do here and now."""
        self._changed = anyio.Event()
        if self._draining:
            return False
        ports = self._ports
        decision = step.next_step(
            self.state,
            now=stamp(ports.clock.now()),
            active_s=self.active_s(),
            workers=WORKERS,
            window_tokens=self._window_tokens,
            may_expire=ports.may_expire(),
        )
        match decision:
            case step.Write(records):
                await self._recorder.append_durably(*records)
            case step.RunCalls(start, edited):
                await self._run_calls(start, edited)
            case step.Infer(attempt, model):
                await self._infer(attempt, model)
            case step.WaitUntil(retry_at):
                await self._wait_until(retry_at)
            case step.Park(needs, reason, retry_at, question):
                parked = RunParked(by="daemon", reason=reason, needs=needs, retry_at=retry_at)
                await self._recorder.append_durably(*([question] if question else []), parked)
            case step.End(status, reason, result):
                shown = excerpt(result, RESULT_BYTES) if result is not None else None
                await self._recorder.append_durably(RunEnded(status=status, reason=reason, result=shown))
            case step.Rest() | step.WaitForHuman():
                return False
        return True

    async def _wait_until(self, retry_at: str) -> None:
        clock = self._ports.clock
        longest = retry.LONGEST_WAIT_S  # a wait read from a journal is never longer than the policy could give now
        seconds = min((parse_stamp(retry_at) - clock.now()).total_seconds(), longest)
        self._active_base, self._active_since = self.active_s(), None
        try:
            async with self._ports.idle():
                await self._first_of(seconds)
        finally:
            self._active_since = clock.monotonic()

    async def _first_of(self, seconds: float) -> None:
        """Wait until woken, at most so long."""
        async with anyio.create_task_group() as both:

            async def woken() -> None:
                await self._changed.wait()
                both.cancel_scope.cancel()

            both.start_soon(woken)
            await self._ports.clock.sleep(max(seconds, 0.0))
            both.cancel_scope.cancel()

    # Asking the model

    async def _infer(self, attempt: int, name: str) -> None:
        try:
            model = await self._ports.load_model(name)
        except ModelFailure as failure:
            await self._failed(name, failure)
            return
        self._window_tokens = model.window_tokens
        state = self.state
        request, before = self._request(model), state.seq
        started = InferenceStarted(
            attempt=attempt,
            provider=model.provider,
            model=model.name,
            active_s=self.active_s(),
            estimate=model.estimate(request) or None,
        )
        await self._recorder.append(started)
        seen = state.seq
        if seen > before + 1:  # what was said while the record was written belongs to the request
            request = self._request(model)
        answer: ModelTurn | None = None
        with anyio.CancelScope() as self._inference:
            if self._draining or self._interrupted():
                self._inference.cancel()
            try:
                answer = await model.infer(request, self._ports.on_delta)
            except ModelFailure as failure:
                await self._failed(name, failure)
        self._inference = None
        if answer is not None and not self._interrupted():
            await self._take(model, answer, seen)

    def _interrupted(self) -> bool:
        """Whether the run was paused or is to be cancelled: an answer that comes now counts for nothing."""
        return self.state.status is not Status.ACTIVE or self.state.cancel_by is not None

    def _request(self, model: Model) -> ModelRequest:
        state = self.state
        return ModelRequest(
            system_prompt=str(state.agent.get("system_prompt", "")),
            messages=state.conversation.request(model.provider, model.name),
            tools=[tool.spec for tool in self._tools_now().values()],
            turns=state.turns,
            failures=state.failures,
        )

    def _tools_now(self) -> dict[str, Tool]:
        """The tools of the stage that the run is in."""
        return {name: tool for name, tool in self._ports.tools.items() if self.state.allows(name)}

    async def _take(self, model: Model, answer: ModelTurn, seen: int) -> None:
        faults.hit("run.answered")
        state = self.state
        content = clean_json(answer.content)
        turn = AssistantTurn(
            turn=state.turns + 1,
            seen=seen,
            content=content if isinstance(content, list) else [],
            stop_reason=answer.stop_reason,
            usage=answer.usage,
            cost_usd=answer.cost_usd,
            provider=model.provider,
            model=model.name,
            active_s=self.active_s(),
        )
        calls = calls_in(turn.content, turn.turn, self._tools_now())
        if not calls:
            await self._recorder.append_durably(turn)
            return
        batch = ToolBatch(turn=turn.turn, calls=[call.to_json() for call in calls])
        states = [CallState(**call) for call in batch.calls]
        held = self._draining or gates.may_hold(state, [call.name for call in calls])
        first = [] if held else gates.callable_now(states, WORKERS)
        await self._recorder.append_durably(turn, batch, *(ToolCallStarted(call_id=call.call_id) for call in first))
        self._start({call.call_id for call in first})

    async def _failed(self, model: str, failure: ModelFailure) -> None:
        decision = retry.after_failure(
            failure.failure,
            self.state.failures + 1,
            retry_after_s=failure.retry_after_s,
            jitter=self._ports.random.random(),
        )
        retry_at = None if decision.delay_s is None else _later(self._ports.clock, decision.delay_s)
        failed = InferenceFailed(
            failure=failure.failure,
            message=excerpt(str(failure), MESSAGE_BYTES),
            retryable=decision.delay_s is not None,
            model=model,
            retry_at=retry_at,
            active_s=self.active_s(),
        )
        if decision.delay_s is not None or self.state.status is not Status.ACTIVE:
            await self._recorder.append_durably(failed)
            return
        reason = f"{decision.reason}: {failed.message}"
        await self._recorder.append_durably(failed, RunParked(by="daemon", reason=reason, needs=decision.needs))

    # Running calls

    async def _run_calls(self, start: tuple[CallState, ...], edited: Mapping[str, Json]) -> None:
        if start:
            records = (ToolCallStarted(call_id=call.call_id, arguments=edited.get(call.call_id)) for call in start)
            await self._recorder.append_durably(*records)
            self._start({call.call_id for call in start})
        else:
            await self._changed.wait()

    def _start(self, call_ids: set[str]) -> None:
        if self._tasks is None:
            raise RuntimeError("drive() is not running")
        for call in self.state.calls:
            if call.call_id in call_ids:
                self._tasks.start_soon(self._call, call)

    async def _call(self, call: CallState) -> None:
        """Run one call that was handed over, and journal its result at once."""
        clock, began = self._ports.clock, self._ports.clock.monotonic()
        if (error := refused(self.state, call, self._tools_now())) is not None:
            await self._settle(done(call.call_id, error, duration_s=0.0, settled_by=SettledBy.POLICY))
            return
        tool = self._ports.tools[call.name]
        try:
            result = await (self._launched(tool, call) if tool.spec.runs_process else self._called(tool, call))
        except (OSError, StoreError) as error:
            text = f"[error] the call could not be started, so nothing was done: {error}"
            result = ToolResult(text=text, outcome=Outcome.ERROR)
        if result is None:
            return
        faults.hit("run.call_ended")
        await self._finished(call, result, clock.monotonic() - began)

    async def _called(self, tool: Tool, call: CallState) -> ToolResult | None:
        """Run a call in this process. None: a drain did not wait for it, and the next daemon settles it."""
        if not tool.spec.stoppable:
            return await tool.call(*self._with(call))
        result: ToolResult | None = None
        with anyio.CancelScope() as scope:
            self._stoppable_scopes[call.call_id] = scope
            if self._draining or self.state.cancel_by is not None:
                self._limit(scope)
            result = await tool.call(*self._with(call))
        del self._stoppable_scopes[call.call_id]
        if result is None and self._end_commands is not None:
            result = given_up(self._end_commands)
        return result

    def _limit(self, scope: anyio.CancelScope) -> None:
        grace_s = 0.0 if self._end_commands is EndedBy.CANCEL else DRAIN_GRACE_S
        scope.deadline = min(scope.deadline, anyio.current_time() + grace_s)

    async def _launched(self, tool: Tool, call: CallState) -> ToolResult | None:
        """Run a call under the launcher. None: the daemon is being drained and the command goes on without it."""
        call_dir = await self._ports.store.make_call_dir(self.state.run_id, call.call_id)
        result: ToolResult | None = None
        with anyio.CancelScope() as scope:
            self._process_scopes[call.call_id] = scope
            if self._draining or self.state.cancel_by is not None:
                scope.cancel()
            result = await tool.call(*self._with(call))
        self._process_scopes.pop(call.call_id, None)
        if result is None and self._end_commands is not None:
            result, _ = await self._ended(call_dir, self._end_commands)
        return result

    async def _adopted(self, call: CallState) -> None:
        """Wait for the real result of a command that an earlier daemon started."""
        call_dir = self._ports.store.call_dir(self.state.run_id, call.call_id)
        result: ToolResult | None = None
        duration_s = 0.0
        with anyio.CancelScope() as scope:
            self._process_scopes[call.call_id] = scope
            result, duration_s = await self._real_result(call_dir)
        self._process_scopes.pop(call.call_id, None)
        if result is None:
            if self._end_commands is None:
                return
            result, duration_s = await self._ended(call_dir, self._end_commands)
        await self._finished(call, result, duration_s, reason="adopted")

    async def _ended(self, call_dir: Path, by: EndedBy) -> tuple[ToolResult, float]:
        spawner = self._ports.spawner
        await spawner.end(call_dir, by=by, grace_s=END_GRACE_S)
        if (await anyio.to_thread.run_sync(spawner.probe, call_dir)).trace is Trace.FENCED:
            return ToolResult(text=NOT_STARTED, outcome=Outcome.NOT_STARTED, reason=f"not started ({by})"), 0.0
        return await self._real_result(call_dir)

    async def _real_result(self, call_dir: Path) -> tuple[ToolResult, float]:
        spawner = self._ports.spawner
        ended = await spawner.adopt(call_dir)
        stdout, stderr = await anyio.to_thread.run_sync(spawner.outputs, call_dir)
        return result_of_exit(ended, stdout, stderr), ended.duration_s if ended else 0.0

    async def _finished(
        self, call: CallState, result: ToolResult, duration_s: float, reason: str | None = None
    ) -> None:
        if call.edited is not None:
            result = replace(result, text=excerpt(f"{edit_of(call)}\n{result.text}"))
        blob = None
        if result.full is not None:
            blob = await self._recorder.keep(result.full)
        await self._settle(done(call.call_id, result, duration_s=duration_s, reason=reason, output_blob=blob))

    async def _settle(self, record: ToolCallDone) -> None:
        await self._recorder.append(record)
        self._changed.set()

    def _with(self, call: CallState) -> tuple[ToolContext, dict[str, Any]]:
        ports, run_id = self._ports, self.state.run_id
        context = ToolContext(
            run_id=run_id,
            call_id=call.call_id,
            workspace=self._workspace,
            call_dir=self._calls_dir / call.call_id,
            runs_lock=ports.store.lock_path,
            spawner=ports.spawner,
            env={**self._env, "ONWARD_CALL_ID": call.call_id},
            deadline_s=self.state.limits.get("call_deadline_s"),
            orphan_grace_s=ports.orphan_grace_s,
        )
        given = call.edited if call.edited is not None else call.arguments
        return context, given if isinstance(given, dict) else {}

    async def _write_draining(self) -> None:
        in_flight = [call.call_id for call in self.state.open_calls if call.started]
        await self._recorder.append_durably(DaemonDraining(in_flight=in_flight, active_s=self.active_s()))


def _later(clock: Clock, seconds: float) -> str:
    return stamp(clock.now() + timedelta(seconds=seconds))
