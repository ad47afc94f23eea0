"""From a model's answer to calls, and from a tool's result to its record. Pure."""

from collections.abc import Mapping

from onward.core.conversation import Block, CallState
from onward.core.ids import make_call_id
from onward.core.records import Call, ToolCallDone
from onward.core.stages import TRANSITION
from onward.core.state import RunState
from onward.core.vocabulary import Effect, Outcome, SettledBy
from onward.ports.process import EndedBy
from onward.ports.tool import Tool, ToolResult

_PASSED_ON = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "SHELL")


def calls_in(content: list[Block], turn: int, tools: Mapping[str, Tool]) -> list[Call]:
    """Return the calls that a turn asks for, in its order."""
    asked = [block for block in content if block.get("type") == "tool_use"]
    calls = []
    for position, block in enumerate(asked, 1):
        tool = tools.get(str(block.get("name")))
        arguments = block.get("input")
        calls.append(
            Call(
                call_id=make_call_id(turn, position),
                provider_id=str(block.get("id") or ""),
                name=str(block.get("name") or ""),
                arguments=arguments if isinstance(arguments, dict | str) else {},
                effect=tool.spec.effect if tool else Effect.READ,
            )
        )
    return calls


def refused(state: RunState, call: CallState, tools: Mapping[str, Tool]) -> ToolResult | None:
    """Return the error result of a call that cannot be carried out at all, or None."""
    if call.name not in tools:
        known = ", ".join(sorted(tools)) or "none"
        return ToolResult(text=f"[error] there is no tool {call.name!r}; known: {known}", outcome=Outcome.ERROR)
    if isinstance(call.arguments, str):
        text = f"[error] the arguments are no JSON object, so nothing was done. They were:\n{call.arguments}"
        return ToolResult(text=text, outcome=Outcome.ERROR)
    following = state.stage.next if state.stage else ()
    given = call.arguments if call.edited is None else call.edited
    if call.name == TRANSITION and given.get("stage") not in following:
        text = f"[error] the next stage is one of: {', '.join(following)}; nothing was changed"
        return ToolResult(text=text, outcome=Outcome.ERROR)
    return None


def given_up(by: EndedBy) -> ToolResult:
    """Return the result of a call of this process that was not waited for any longer."""
    cancelled = by is EndedBy.CANCEL
    why = "it was given up on request" if cancelled else "it was given up because the daemon was stopped"
    text = (
        f"[error] {'cancelled' if cancelled else 'interrupted'}: {why}. Whether it took effect is unknown. It has NOT "
        "been retried. Verify the state of what it was changing before assuming either way."
    )
    return ToolResult(text=text, outcome=Outcome.CANCELLED if cancelled else Outcome.INTERRUPTED, reason=why)


def done(
    call_id: str,
    result: ToolResult,
    *,
    duration_s: float,
    settled_by: SettledBy = SettledBy.TOOL,
    reason: str | None = None,
    output_blob: str | None = None,
) -> ToolCallDone:
    """Return the record of a call's result."""
    return ToolCallDone(
        call_id=call_id,
        outcome=result.outcome,
        result=result.text,
        is_error=result.is_error,
        settled_by=settled_by,
        duration_s=round(duration_s, 3),
        reason=reason or result.reason,
        evidence=result.evidence,
        output_blob=output_blob,
        ends_run=result.ends_run,
        moves_to=result.moves_to,
    )


def tool_environment(own: Mapping[str, str], *, instance: str, run_id: str) -> dict[str, str]:
    """Return the environment of a run's commands: a few harmless variables of ours, and the markers to find them by.

    What is missing is ONWARD_CALL_ID.
    """
    return {**base_environment(own), "ONWARD_INSTANCE": instance, "ONWARD_RUN_ID": run_id}


def base_environment(own: Mapping[str, str]) -> dict[str, str]:
    """Return the few variables of ours that are harmless to pass on."""
    passed_on = {name: own[name] for name in _PASSED_ON if name in own}
    return {"PATH": "/usr/local/bin:/usr/bin:/bin", **passed_on}
