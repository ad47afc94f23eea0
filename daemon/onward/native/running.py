"""The calls of one run that are being carried out: handed over, adopted, stopped; each is journaled as it ends."""

import math
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import structlog
from anyio.abc import TaskGroup

from onward.core.conversation import NOT_STARTED, CallState, edit_of
from onward.core.records import ToolCallDone
from onward.core.retry import doubled
from onward.core.state import RunState
from onward.core.text import clean, excerpt
from onward.core.vocabulary import Outcome, SettledBy
from onward.errors import StoreError
from onward.native.calls import done, given_up, refused, tool_environment
from onward.native.ports import Recorder, RunPorts
from onward.native.tools.process_result import cut_off, result_of_exit
from onward.ports.process import EndedBy, Trace
from onward.ports.store import is_full
from onward.ports.tool import Tool, ToolContext, ToolResult
from onward.testing import faults

END_GRACE_S = 10.0
DRAIN_GRACE_S = 15.0
"""Seconds that a call of this process still has when the run is drained, or is cancelled and may not be given up."""
ROOM_FIRST_S, ROOM_LONGEST_S = 1.0, 15.0
"""Seconds between two tries to start a command for which the disk has no room."""

log = structlog.get_logger()


class RunningCalls:
    """The calls of one active run. `on_end` is told after each one's result is in the journal."""

    def __init__(self, recorder: Recorder, ports: RunPorts, on_end: Callable[[], None]) -> None:
        self._recorder = recorder
        self._ports = ports
        self._on_end = on_end
        self._stopping = False
        self._end_commands: EndedBy | None = None
        self._process_scopes: dict[str, anyio.CancelScope] = {}
        self._own_scopes: dict[str, anyio.CancelScope] = {}
        self._calls_dir = ports.store.call_dir(recorder.state.run_id, "t1c1").parent
        self._workspace = Path(recorder.state.workspace)
        self._env = tool_environment(os.environ, instance=ports.store.instance, run_id=recorder.state.run_id)

    @property
    def _state(self) -> RunState:
        return self._recorder.state

    def tools_now(self) -> dict[str, Tool]:
        """Return the tools of the stage that the run is in."""
        tools = self._ports.tools
        return {name: tools[name] for name in self._state.allowed(tools)}

    def start(self, call_ids: set[str], tasks: TaskGroup) -> None:
        """Carry out calls that were handed over."""
        for call in self._state.calls:
            if call.call_id in call_ids:
                tasks.start_soon(self._call, call)

    def adopt(self, call_ids: tuple[str, ...], tasks: TaskGroup) -> None:
        """Wait for the results of commands that an earlier daemon started."""
        for call in self._state.open_calls:
            if call.call_id in call_ids:
                tasks.start_soon(self._adopted, call)

    def stop(self, by: EndedBy | None) -> None:
        """Stop waiting: commands are ended `by` this, or (None) left to the next daemon; other calls get a grace."""
        self._stopping, self._end_commands = True, by
        for scope in list(self._process_scopes.values()):
            scope.cancel()
        for scope in self._own_scopes.values():
            self._limit(scope)

    async def _call(self, call: CallState) -> None:
        """Run one call that was handed over, and journal its result at once."""
        clock, began = self._ports.clock, self._ports.clock.monotonic()
        if (error := refused(self._state, call, self.tools_now())) is not None:
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
        """Run a call in this process. None: a drain did not wait for it, and the next daemon settles it.

        What may have an effect is waited for whatever else fails in this run, but not for ever.
        """
        context, arguments = self._with(call)
        result: ToolResult | None = None
        with anyio.CancelScope(shield=not tool.spec.stoppable) as scope:
            scope.deadline = anyio.current_time() + (math.inf if context.deadline_s is None else context.deadline_s)
            self._own_scopes[call.call_id] = scope
            if self._stopping or self._state.cancel_by is not None:
                self._limit(scope)
            result = await tool.call(context, arguments)
        del self._own_scopes[call.call_id]
        if result is None and self._end_commands is not None:
            result = given_up(self._end_commands)
        elif result is None and not self._stopping:
            result = cut_off(Outcome.TIMEOUT, f"it did not end within {context.deadline_s:g} s, and may still go on")
        return result

    def _limit(self, scope: anyio.CancelScope) -> None:
        at_once = self._end_commands is EndedBy.CANCEL and not scope.shield
        scope.deadline = min(scope.deadline, anyio.current_time() + (0.0 if at_once else DRAIN_GRACE_S))

    async def _launched(self, tool: Tool, call: CallState) -> ToolResult | None:
        """Run a call under the launcher, as soon as the disk has room for its evidence: that is not for the model.

        None: the daemon is being drained and the command goes on without it.
        """
        failures = 0
        while True:
            call_dir = await self._recorder.make_call_dir(call.call_id)
            if failures:  # only now: a crash while it waits finds a directory in which nothing was started
                await self._ports.clock.sleep(doubled(ROOM_FIRST_S, ROOM_LONGEST_S, failures))
            try:
                return await self._launched_in(call_dir, tool, call)
            except OSError as error:  # nothing was started
                if not is_full(error):
                    raise
                log.error("call waits for space", call_id=call.call_id, error=str(error))
            await self._ports.store.remove_call_dir(self._state.run_id, call.call_id)
            failures += 1

    async def _launched_in(self, call_dir: Path, tool: Tool, call: CallState) -> ToolResult | None:
        result: ToolResult | None = None
        with anyio.CancelScope() as scope:
            self._process_scopes[call.call_id] = scope
            if self._stopping or self._state.cancel_by is not None:
                scope.cancel()
            result = await tool.call(*self._with(call))
        self._process_scopes.pop(call.call_id, None)
        if result is None and self._end_commands is not None:
            result, _ = await self._ended(call_dir, self._end_commands)
        return result

    async def _adopted(self, call: CallState) -> None:
        """Wait for the real result of a command that an earlier daemon started."""
        call_dir = self._ports.store.call_dir(self._state.run_id, call.call_id)
        result: ToolResult | None = None
        duration_s = 0.0
        with anyio.CancelScope() as scope:
            self._process_scopes[call.call_id] = scope
            if self._stopping:
                scope.cancel()
            result, duration_s = await self._real_result(call_dir)
        self._process_scopes.pop(call.call_id, None)
        if result is None:
            if self._end_commands is None:
                return
            result, duration_s = await self._ended(call_dir, self._end_commands)
        await self._finished(call, result, duration_s, reason="adopted")

    async def _ended(self, call_dir: Path, by: EndedBy) -> tuple[ToolResult, float]:
        spawner = self._ports.spawner
        try:
            await spawner.end(call_dir, by=by, grace_s=END_GRACE_S)
            if (await anyio.to_thread.run_sync(spawner.probe, call_dir)).trace is Trace.FENCED:
                return ToolResult(text=NOT_STARTED, outcome=Outcome.NOT_STARTED, reason=f"not started ({by})"), 0.0
            return await self._real_result(call_dir)
        except (OSError, StoreError) as error:  # it was handed over: from here on "nothing was done" would be a guess
            because = f"it was ended ({by}), and what it has left cannot be read ({clean(str(error))})"
            return cut_off(Outcome.INTERRUPTED, because), 0.0

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
        self._on_end()

    def _with(self, call: CallState) -> tuple[ToolContext, dict[str, Any]]:
        ports, run_id = self._ports, self._state.run_id
        context = ToolContext(
            run_id=run_id,
            call_id=call.call_id,
            workspace=self._workspace,
            calls_dir=self._calls_dir,
            runs_lock=ports.store.lock_path,
            spawner=ports.spawner,
            env={**self._env, "ONWARD_CALL_ID": call.call_id},
            deadline_s=self._state.limits.get("call_deadline_s"),
            orphan_grace_s=ports.orphan_grace_s,
        )
        given = call.edited if call.edited is not None else call.arguments
        return context, given if isinstance(given, dict) else {}
