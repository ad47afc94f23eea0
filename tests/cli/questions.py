"""Questions of every kind, as a run that waits for their answers has asked them, for tests."""

from typing import Any

from onward.core.conversation import CallState
from onward.core.gates import binding_of
from onward.core.records import Call, InteractionOpened, Record, RunParked, StageEntered, ToolBatch
from onward.core.vocabulary import Effect, Needs
from tests.cli.records import turn

TOOLS = {"ask": "ask_user", "review": "present_for_review", "edit": "edit_document", "permission": "shell"}
PARKED = {"budget": Needs.BUDGET, "damage": Needs.DECISION}
DEFINITION = {
    "tools": list(TOOLS.values()),
    "permissions": {"shell": [{"then": "ask"}]},
    "stages": [{"name": "plan", "checkpoint": ["approve"]}],
}
PLAN = "the plan\n" + "\n".join(f"step {n}" for n in range(30))


def call_of(question: InteractionOpened) -> Call:
    arguments = question.ask["arguments"] if question.kind == "permission" else question.ask
    call_id, name = f"t1c{question.interaction_id[1:]}", TOOLS[question.kind]
    return Call(call_id=call_id, provider_id="", name=name, arguments=arguments, effect=Effect.READ)


def asks(kind: str, prompt: str = "What?", number: int = 1, **ask: Any) -> InteractionOpened:
    question = InteractionOpened(
        interaction_id=f"q{number}", kind=kind, prompt=prompt, options=[], binds_to={}, ask=ask
    )
    if kind in TOOLS:
        question.binds_to.update(binding_of(CallState(**call_of(question).to_json())))
    return question


def asks_for(command: str, number: int = 1) -> InteractionOpened:
    ask = {"tool": "shell", "arguments": {"command": command}, "why": "rule prefix 'git push': ask"}
    return asks("permission", "May the run do this?", number, **ask)


def waiting(*questions: Record) -> tuple[Record, ...]:
    """What a run of DEFINITION has written when it waits for a human."""
    asked = [question for question in questions if isinstance(question, InteractionOpened)]
    calls = [call_of(question).to_json() for question in asked if question.kind in TOOLS]
    parks = [PARKED[question.kind] for question in asked if question.kind in PARKED]
    return (
        StageEntered(stage="plan", visit=1),
        turn("I planned."),
        *([ToolBatch(turn=1, calls=calls)] if calls else []),
        *questions,
        *(RunParked(by="daemon", reason="a limit is reached", needs=needs) for needs in parks),
    )


CHECKPOINT = asks("checkpoint", "Stage 'plan' is done. Approve what it brought?", result=PLAN)
