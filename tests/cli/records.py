"""Records as a run writes them, for tests."""

from typing import Any

from onward.core.records import AssistantTurn, Call, RunEnded, RunParked, ToolBatch, ToolCallDone, ToolCallStarted
from onward.core.vocabulary import Effect, Needs, Outcome, SettledBy

COMPLETED = RunEnded(status="completed", reason="finished", result="all done")
FAILED = RunEnded(status="failed", reason="the model gave up")
NO_KEY = RunParked(by="daemon", reason="no key", needs=Needs.KEY)
NO_MONEY = RunParked(by="daemon", reason="5 dollars are spent", needs=Needs.BUDGET)


def turn(text: str, number: int = 1) -> AssistantTurn:
    return AssistantTurn(
        turn=number,
        seen=1,
        content=[{"type": "text", "text": text}],
        stop_reason="end_turn",
        usage={"input_tokens": 10, "output_tokens": 5},
        cost_usd=0.25,
        provider="scripted",
        model="x",
        active_s=1.0,
    )


def batch(*commands: str, number: int = 1) -> ToolBatch:
    calls = [
        Call(
            call_id=f"t{number}c{position}",
            provider_id="",
            name="shell",
            arguments={"command": command},
            effect=Effect.UNKNOWN,
        ).to_json()
        for position, command in enumerate(commands, 1)
    ]
    return ToolBatch(turn=number, calls=calls)


def handed_over(call_id: str) -> ToolCallStarted:
    return ToolCallStarted(call_id=call_id)


def done(call_id: str, result: str = "", outcome: Outcome = Outcome.OK, **members: Any) -> ToolCallDone:
    fields = {"is_error": outcome is not Outcome.OK, "settled_by": SettledBy.TOOL, "duration_s": 0.5, **members}
    return ToolCallDone(call_id=call_id, outcome=outcome, result=result, **fields)
