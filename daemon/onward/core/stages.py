"""Stages: which one a run is in, what holds in it, and where it goes when a turn has ended. Pure.

A run without stages in its definition is in none, and none of this concerns it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from onward.core.interactions import Interaction, Kind
from onward.core.records import InteractionOpened, Json, MessageAdded, Record, RunEnded, StageEntered, StageLeft
from onward.core.status import Status
from onward.core.vocabulary import Source

TRANSITION = "transition"
"""The tool with which a model chooses the next stage."""
MCP_PREFIX = "mcp__"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One stage of a definition. None: as the definition says for the whole run."""

    name: str
    prompt: str = ""
    tools: tuple[str, ...] | None = None
    permissions: Mapping[str, Any] | None = None
    model: str | None = None
    checkpoint: tuple[str, ...] = ()
    next: tuple[str, ...] = ()
    max_visits: int | None = None
    on_error: str = "fail"


@dataclass(slots=True, kw_only=True)
class Visit:
    """One visit of a stage: a line of the ledger. `left` None: the run is in it; `to`: the stage that was to follow."""

    stage: str
    visit: int
    entered: str
    seq: int
    left: str | None = None
    turns: int = 0
    tokens: int = 0
    cost_usd: float = 0.0
    result: str | None = None
    to: str | None = None


@dataclass(slots=True)
class Ledger:
    """All visits so far, the newest last."""

    visits: list[Visit] = field(default_factory=list)

    @property
    def now(self) -> Visit | None:
        """The visit the run is in."""
        return self.visits[-1] if self.visits and self.visits[-1].left is None else None

    def count(self, stage: str) -> int:
        return sum(1 for visit in self.visits if visit.stage == stage)


def stages_of(agent: Json) -> dict[str, Stage]:
    """Return the stages of a pinned definition, in order; what is ill-formed is left out."""
    found: dict[str, Stage] = {}
    for item in agent.get("stages") or []:
        if isinstance(item, dict) and isinstance(item.get("name"), str):
            known = {name: _frozen(item[name]) for name in Stage.__dataclass_fields__ if item.get(name) is not None}
            found[item["name"]] = Stage(**known)
    return found


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def begun(agent: Json, ledger: Ledger) -> tuple[Record, ...] | None:
    """Return the records that bring a run into a stage that it has to be in already, or None.

    A run begins in its first stage. One that left a stage for another may have died before it was written down that it
    entered that one.
    """
    if ledger.now is not None:
        return None
    if ledger.visits:
        target = ledger.visits[-1].to
        return None if target is None else entering(agent, ledger, target)
    first = next(iter(stages_of(agent)), None)
    return None if first is None else entering(agent, ledger, first)


def leaving(agent: Json, ledger: Ledger, visit: Visit, to: str, result: str) -> tuple[Record, ...]:
    """Return the records that bring a run out of the stage it is in and into another one."""
    leave = StageLeft(stage=visit.stage, visit=visit.visit, result=result, to=to)
    return (leave, *entering(agent, ledger, to))


def entering(agent: Json, ledger: Ledger, name: str) -> tuple[Record, ...]:
    """Return the records that bring a run into a stage; or that end it.

    A stage that was visited too often is not entered: its `on_error` decides, a stage at most once more.
    """
    stages = stages_of(agent)
    stage = stages.get(name)
    tried = {name}
    while stage is not None and stage.max_visits is not None and ledger.count(stage.name) >= stage.max_visits:
        following = stages.get(stage.on_error)
        if following is None or following.name in tried:
            reason = f"stage {stage.name!r} was visited {stage.max_visits} times, which is its max_visits"
            return (RunEnded(status=Status.FAILED, reason=reason),)
        tried.add(following.name)
        stage = following
    if stage is None:
        return (RunEnded(status=Status.FAILED, reason=f"the definition has no stage {name!r}"),)
    visit = ledger.count(stage.name) + 1
    prompt = prompt_of(stage, visit)
    return (StageEntered(stage=stage.name, visit=visit), *([prompt] if prompt else []))


def prompt_of(stage: Stage, visit: int) -> MessageAdded | None:
    """Return what a run is told when it enters a stage."""
    if not stage.prompt:
        return None
    message_id = f"stage-{stage.name}-{visit}"
    return MessageAdded(message_id=message_id, source=Source.SYSTEM, content=stage.prompt, by="stage")


def failing(agent: Json, ledger: Ledger, result: str) -> tuple[Record, ...] | None:
    """Return the records that follow when the model says that a stage failed; None: the run ends as failed."""
    visit = ledger.now
    stage = stages_of(agent).get(visit.stage) if visit else None
    if visit is None or stage is None or stage.on_error not in stages_of(agent):
        return None
    return leaving(agent, ledger, visit, stage.on_error, result)


def asked_at(
    visit: Visit, stage: Stage, asked: list[Interaction], result: str, opened: int
) -> tuple[InteractionOpened | None, Interaction | None]:
    """Return the checkpoint question that is to be opened next, or the one that decides already.

    Args:
        visit: Where the run is.
        stage: Its definition.
        asked: The checkpoint questions opened since the newest turn, in order: one a point.
        result: What the stage brought, as it is shown.
        opened: How many questions the run has asked so far.

    Returns:
        (a question to open, None); or (None, the question that is open, was rejected or has expired); or (None, None)
        when every point is approved.
    """
    for point, label in enumerate(stage.checkpoint):
        if point >= len(asked):
            question = InteractionOpened(
                interaction_id=f"q{opened + 1}",
                kind=Kind.CHECKPOINT,
                prompt=f"Stage {stage.name!r} is done. {label.capitalize()} what it brought?",
                options=["approve", "edit", "reject"],
                binds_to={"stage": visit.stage, "visit": visit.visit, "point": point},
                ask={"result": result},
            )
            return question, None
        if asked[point].decision not in ("approve", "edit"):
            return None, asked[point]
    return None, None


def approved(edited: Interaction) -> MessageAdded:
    """Return what the model is told of a result that a human changed."""
    return _said(edited, f"Approved with changes. This counts:\n{edited_text(edited)}", Source.HUMAN)


def not_approved(question: Interaction, edited: Interaction | None) -> MessageAdded:
    """Return what the model is told of a result that was rejected, or that nobody decided on in time."""
    changed = f"\nIt had been changed to:\n{edited_text(edited)}" if edited else ""
    if question.answer is None:
        return _said(question, f"Not approved, for nobody answered: {question.closed}{changed}", Source.SYSTEM)
    reason = question.answer.get("reason") or "no reason given"
    return _said(question, f"Rejected: {reason}{changed}", Source.HUMAN)


def _said(question: Interaction, text: str, source: Source) -> MessageAdded:
    """The id is that of the question, so that an answer is carried out once."""
    by = question.answered_by or "daemon"
    return MessageAdded(message_id=f"answer-{question.interaction_id}", source=source, content=text, by=by)


def edited_text(question: Interaction) -> str:
    """Return the result as a human changed it."""
    return str((question.answer or {}).get("text", ""))
