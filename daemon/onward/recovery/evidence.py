"""Gathering what the world shows of the calls that a journal does not settle."""

import os
from collections.abc import Collection
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio.to_thread

from onward.core.conversation import CallState, edit_of
from onward.core.plan import Evidence, Found, unbatched_calls
from onward.core.state import RunState
from onward.native.calls import done
from onward.native.tools.file_evidence import file_evidence
from onward.native.tools.process_result import result_of_exit
from onward.native.tools.write_file import remove_leftover
from onward.ports.process import CallTrace, ProcessSpawner, Trace
from onward.ports.store import RunStore
from onward.processes.identity import boot_id
from onward.store.disk import as_store_error

SO_FAR_BYTES = 4096
FILE_TOOLS = ("write_file", "edit_file")

_FOUND = {
    Trace.NONE: Found.NOTHING,
    Trace.ALIVE: Found.ALIVE,
    Trace.EXITED: Found.RESULT,
    Trace.FENCED: Found.FENCED,
    Trace.LOST: Found.LOST,
}


async def gather(
    state: RunState, store: RunStore, spawner: ProcessSpawner, call_dirs: Collection[str]
) -> dict[str, Evidence]:
    """Return the evidence of the unsettled calls of the newest batch that left any, by call id, for a recovery.

    What has not started by now never will, and what survives of a process tree whose launcher is lost is ended.

    Raises:
        StoreError: The disk is full or fails: to be tried again, for a call that could still start must not be settled.
    """
    files = [call for call in _unsettled(state) if call.started and call.name in FILE_TOOLS]
    found = {call.call_id: await anyio.to_thread.run_sync(_look_at_file, state, call) for call in files}
    calls = [call for call in _unsettled(state) if call.call_id in call_dirs]
    if not calls:
        return found
    calls_dir = store.call_dir(state.run_id, calls[0].call_id).parent
    try:
        launched = await anyio.to_thread.run_sync(partial(look_at_all, state, calls_dir, spawner, fence=True))
    except OSError as error:
        raise as_store_error(error, f"looking at the calls of run {state.run_id}") from error
    found = launched | found
    for call_id, evidence in found.items():
        if evidence.found is Found.LOST:
            await spawner.adopt(calls_dir / call_id)
    return found


def _look_at_file(state: RunState, call: CallState) -> Evidence:
    """Say what an interrupted file call left behind, and remove its temporary file."""
    arguments = call.edited if call.edited is not None else call.arguments
    if not isinstance(arguments, dict):
        return Evidence(found=Found.NOTHING)
    workspace, home = Path(state.workspace), os.environ.get("HOME")
    prepared = remove_leftover(str(arguments.get("path", "")), state.run_id, call.call_id, workspace, home)
    said = file_evidence(call.name, arguments, workspace, home, prepared=prepared)
    return Evidence(found=Found.NOTHING, facts={"file": said} if said else None)


def look_at_all(state: RunState, calls_dir: Path, spawner: ProcessSpawner, *, fence: bool) -> dict[str, Evidence]:
    """Return the evidence by call id; without `fence` nothing is changed. Blocks."""
    return {call.call_id: _look(call, calls_dir / call.call_id, spawner, fence=fence) for call in _unsettled(state)}


def _unsettled(state: RunState) -> list[CallState]:
    turn = state.turn
    if turn is not None and not turn.batch and turn.asks:
        return unbatched_calls(turn)
    return state.open_calls


def _look(call: CallState, call_dir: Path, spawner: ProcessSpawner, *, fence: bool) -> Evidence:
    trace = spawner.fence(call_dir) if fence else spawner.probe(call_dir)
    if not fence and trace.trace is Trace.NONE and call_dir.is_dir():
        trace = CallTrace(trace=Trace.FENCED, boot_id=boot_id())  # what a recovery would find: its own fence
    if trace.trace is Trace.EXITED:
        return _result(call, call_dir, trace, spawner)
    facts = None
    if trace.trace is Trace.LOST:
        printed = _so_far(*spawner.outputs(call_dir))
        facts = {"output_so_far": printed} if printed else None
    return Evidence(found=_FOUND[trace.trace], boot_id=trace.boot_id, facts=facts)


def _so_far(stdout: bytes, stderr: bytes) -> str:
    """Return the end of what a command had printed; what is left out before it is counted."""
    ends = [_end_of(stdout), _end_of(stderr)]
    return "\n[stderr]\n".join(ends) if ends[1] else ends[0]


def _end_of(data: bytes) -> str:
    left_out = max(len(data) - SO_FAR_BYTES, 0)
    end = data[left_out:].decode("utf-8", "replace").replace("\x00", "\ufffd").removesuffix("\n")
    return f"[... {left_out} bytes before this left out ...]\n{end}" if left_out else end


def _result(call: CallState, call_dir: Path, trace: CallTrace, spawner: ProcessSpawner) -> Evidence:
    """The command's end was recorded, but not journaled: its real result is the result."""
    stdout, stderr = spawner.outputs(call_dir)
    result = result_of_exit(trace.exit, stdout, stderr)
    duration_s = trace.exit.duration_s if trace.exit else 0.0
    if call.edited is not None:
        result = replace(result, text=f"{edit_of(call)}\n{result.text}")
    record = done(call.call_id, result, duration_s=duration_s, reason="completed-unpersisted")
    return Evidence(found=Found.RESULT, boot_id=trace.boot_id, done=record)
