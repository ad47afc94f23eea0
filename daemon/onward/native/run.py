"""The native loop: ask the model, run the tools it asks for, repeat.

`drive` asks `core.step.next_step` what is next and carries it out: records first, then the effect. It can be killed
between any two instructions; what it does next time follows from the journal alone.
"""

from collections.abc import Mapping
from datetime import timedelta

import anyio
from anyio.abc import TaskGroup

from onward.core import gates, retry, step
from onward.core.budget import over_limit, unpriced
from onward.core.conversation import CallState
from onward.core.records import (
    AssistantTurn,
    DaemonDraining,
    InferenceFailed,
    InferenceStarted,
    Json,
    Record,
    RunParked,
    ToolBatch,
    ToolCallStarted,
)
from onward.core.state import RunState
from onward.core.status import Status
from onward.core.text import clean_json, excerpt
from onward.core.times import parse_stamp, stamp
from onward.core.vocabulary import Needs
from onward.native.calls import calls_in
from onward.native.ports import Recorder, RunPorts
from onward.native.running import RunningCalls
from onward.ports.clock import Clock
from onward.ports.model import Model, ModelFailure, ModelRequest, ModelTurn
from onward.ports.process import EndedBy
from onward.testing import faults

WORKERS = 8
MESSAGE_BYTES = 2000


class NativeRun:
    """One run while it is active in this process."""

    def __init__(self, recorder: Recorder, ports: RunPorts, *, adopt: tuple[str, ...] = ()) -> None:
        self._recorder = recorder
        self._ports = ports
        self._adopt = adopt
        self._calls = RunningCalls(recorder, ports, self.wake)
        self._changed = anyio.Event()
        self._window_tokens: int | None = None
        self._draining = False
        self._inference: anyio.CancelScope | None = None
        self._tasks: TaskGroup | None = None
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
            self._calls.adopt(self._adopt, tasks)
            while await self._step():
                pass
        # Here every call of this process has ended, or was left to the next daemon.
        if self._draining and self.state.status is Status.ACTIVE:
            await self._write_draining()

    def drain(self, *, leave_running: bool) -> None:
        """Stop at the next safe place: no new request or call; commands are left to the next daemon, or ended."""
        self._draining = True
        self._calls.stop(None if leave_running else EndedBy.STOP)
        self._drop_request()

    def obey(self) -> None:
        """Follow what was just journaled: a pause drops the request that is out, a cancel ends commands too."""
        if self.state.cancel_by is not None:
            self._calls.stop(EndedBy.CANCEL)
        if self._interrupted():
            self._drop_request()
        self.wake()

    def _drop_request(self) -> None:
        if self._inference is not None:
            self._inference.cancel()
        self.wake()

    def wake(self) -> None:
        """Look again at what is next: something was added to the journal, or time has passed."""
        self._changed.set()

    async def _step(self) -> bool:
        """Do the next thing; False when there is nothing more to do here and now."""
        if self._changed.is_set():
            self._changed = anyio.Event()
        if self._draining:
            return False
        match self._decided():
            case step.Write() | step.Park() | step.End():
                await self._recorder.act(lambda: step.written(self._decided()))
            case step.RunCalls(start, edited):
                await self._run_calls(start, edited)
            case step.Infer(attempt, model):
                await self._infer(attempt, model)
            case step.WaitUntil(retry_at):
                await self._wait_until(retry_at)
            case step.Rest() | step.WaitForHuman():
                return False
        return True

    def _decided(self) -> step.Step:
        """Return what is next. What it writes is decided again at the moment of writing."""
        return step.next_step(
            self.state,
            now=stamp(self._ports.clock.now()),
            active_s=self.active_s(),
            workers=WORKERS,
            window_tokens=self._window_tokens,
            may_expire=self._ports.may_expire(),
        )

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
        estimate = model.estimate(request)
        if (why := unpriced(state.limits, name, estimate)) is not None:
            parked = RunParked(by="daemon", reason=why, needs=Needs.HUMAN)
            await self._recorder.act(lambda: step.parking(state, parked))
            return
        started = InferenceStarted(
            attempt=attempt,
            provider=model.provider,
            model=model.name,
            active_s=self.active_s(),
            estimate=estimate or None,
        )
        await self._recorder.write(lambda: [] if self._interrupted() else [started])
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
            tools=[tool.spec for tool in self._calls.tools_now().values()],
            turns=state.turns,
            failures=state.failures,
        )

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
        calls = calls_in(turn.content, turn.turn, self._calls.tools_now())
        batch = ToolBatch(turn=turn.turn, calls=[call.to_json() for call in calls])
        first: list[CallState] = []

        def decide() -> list[Record]:
            first.clear()
            if self._interrupted():
                return []  # it was paused or is to be cancelled: the answer counts for nothing
            if not calls:
                return [turn]
            states = [CallState(**call) for call in batch.calls]
            over = over_limit(state, states, state.totals.tool_calls + len(states))
            if not (self._draining or over or gates.may_hold(state, [call.name for call in calls])):
                first.extend(gates.callable_now(states, WORKERS))
            return [turn, batch, *(ToolCallStarted(call_id=call.call_id) for call in first)]

        await self._recorder.act(decide)
        self._start({call.call_id for call in first})

    async def _failed(self, model: str, failure: ModelFailure) -> None:
        decision = retry.after_failure(
            failure.failure,
            self.state.failures + 1,
            charged=failure.charged,
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
            charged=failure.charged or None,
            active_s=self.active_s(),
        )
        parked = RunParked(by="daemon", reason=f"{decision.reason}: {failed.message}", needs=decision.needs)
        parks = decision.delay_s is None
        await self._recorder.act(lambda: [failed, *(step.parking(self.state, parked) if parks else [])])

    # Running calls

    async def _run_calls(self, start: tuple[CallState, ...], edited: Mapping[str, Json]) -> None:
        if start:
            records = [ToolCallStarted(call_id=call.call_id, arguments=edited.get(call.call_id)) for call in start]
            await self._recorder.act(lambda: [] if self._draining or self._interrupted() else records)
            asked = {call.call_id for call in start}
            self._start({call.call_id for call in self.state.open_calls if call.started and call.call_id in asked})
        else:
            await self._changed.wait()

    def _start(self, call_ids: set[str]) -> None:
        if self._tasks is None:
            raise RuntimeError("drive() is not running")
        self._calls.start(call_ids, self._tasks)

    async def _write_draining(self) -> None:
        in_flight = [call.call_id for call in self.state.open_calls if call.started]
        await self._recorder.append_durably(DaemonDraining(in_flight=in_flight, active_s=self.active_s()))


def _later(clock: Clock, seconds: float) -> str:
    return stamp(clock.now() + timedelta(seconds=seconds))
