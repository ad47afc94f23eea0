"""Questions of every kind, as a run opens them, for tests."""

from typing import Any

from onward.core.records import InteractionOpened, Record, RunParked, StageEntered
from onward.core.vocabulary import Needs
from tests.cli.records import turn

PLAN = "the plan\n" + "\n".join(f"step {n}" for n in range(30))


def asks(kind: str, prompt: str = "What?", number: int = 1, **ask: Any) -> InteractionOpened:
    return InteractionOpened(
        interaction_id=f"q{number}", kind=kind, prompt=prompt, options=[], binds_to={"n": number}, ask=ask
    )


def asks_for(command: str, number: int = 1) -> InteractionOpened:
    ask = {"tool": "shell", "arguments": {"command": command}, "why": "rule prefix 'git push': ask"}
    return asks("permission", "May the run do this?", number, **ask)


def waiting(*questions: Record) -> tuple[Record, ...]:
    """What a run has written when it waits for a human."""
    return (StageEntered(stage="plan", visit=1), turn("I planned."), *questions)


CHECKPOINT = asks("checkpoint", "Stage 'plan' is done. Approve what it brought?", result=PLAN)
SPENT = RunParked(by="daemon", reason="the limit turns = 1 is reached", needs=Needs.BUDGET)
