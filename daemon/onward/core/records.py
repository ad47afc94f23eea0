"""The records of a run's journal, as they are written. Pure.

Each class is one `type` of design "The run directory"; its fields are the members of the line. A field that is None is
left out of the line. Records are read back as plain JSON objects: `problem_with` says whether one can be folded.
"""

import types
import typing
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from onward.core.vocabulary import Cause, Effect, Needs, Outcome, SettledBy, Source

SCHEMA = 1
FOLD_VERSION = 1

Json = dict[str, Any]


class BadRecord(ValueError):
    """A whole line that cannot be folded here; the message says why. The state is unchanged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What is common: the name of the class is the `type` on the line."""

    def to_json(self) -> Json:
        """Return the line's members, `type` first, without those that are None; words are plain text."""
        line: Json = {"type": type(self).__name__}
        for name in _NAMES[type(self).__name__]:
            value = getattr(self, name)
            if value is not None:
                line[name] = str(value) if isinstance(value, StrEnum) else value
        return line


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted(Record):
    """The run exists. `agent` is the whole resolved definition, pinned; `limits` what this run was started with."""

    run_id: str
    kind: str
    agent: Json
    agent_name: str
    agent_hash: str
    task: str
    workspace: str
    limits: Json
    by: str
    on_restart: str
    version: str
    schema: int = SCHEMA
    model: str | None = None
    parent: str | None = None
    depth: int = 0
    idempotency_key: str | None = None
    request_hash: str | None = None
    workspace_is_mount: bool = False
    """Something was mounted at the workspace itself: where nothing is, the run waits for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunClaimed(Record):
    """A process took the run to work on it. `active_s` is what the run had used before."""

    machine_id: str
    runs_inode: int
    boot_id: str
    pid: int
    start_ticks: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRevived(Record):
    """The run was interrupted and goes on. `attempt` counts from 1."""

    attempt: int
    cause: Cause
    charged: bool
    by: str = "daemon"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageAdded(Record):
    """Something was said to the run."""

    message_id: str
    source: Source
    content: str
    by: str
    role: str = "user"


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceStarted(Record):
    """A model request goes out. `active_s` is the run's active time so far, in seconds."""

    attempt: int
    provider: str
    model: str
    active_s: float
    estimate: Json | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceFailed(Record):
    """A model request brought no turn. `model` (`provider/name`) is not asked again before `retry_at` (UTC).

    `charged`: the provider may have worked on it, so that it counts as its estimate says.
    """

    failure: str
    message: str
    retryable: bool
    active_s: float
    model: str | None = None
    retry_at: str | None = None
    charged: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AssistantTurn(Record):
    """The model answered. `seen` is the seq up to which its request held the journal; `content` is the provider's."""

    turn: int
    seen: int
    content: list[Json]
    stop_reason: str
    usage: Json
    cost_usd: float
    provider: str
    model: str
    active_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One member of ToolBatch.calls. `arguments` is a JSON object, or the raw text where it was none."""

    call_id: str
    provider_id: str
    name: str
    arguments: Json | str
    effect: Effect

    def to_json(self) -> Json:
        return {
            "call_id": self.call_id,
            "provider_id": self.provider_id,
            "name": self.name,
            "arguments": self.arguments,
            "effect": str(self.effect),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolBatch(Record):
    """What the turn asks to be done; durable before any of it can start."""

    turn: int
    calls: list[Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallStarted(Record):
    """A call is handed over to a free worker; its absence means that it did not run.

    `arguments` stands where a human edited them: it runs with these.
    """

    call_id: str
    arguments: Json | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallDone(Record):
    """A call ended. `output_blob` holds the whole output where `result` is an excerpt."""

    call_id: str
    outcome: Outcome
    result: str
    is_error: bool
    settled_by: SettledBy
    duration_s: float
    reason: str | None = None
    evidence: Json | None = None
    output_blob: str | None = None
    ends_run: str | None = None
    moves_to: str | None = None
    """The stage that a `transition` call chose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageEntered(Record):
    """The run is in this stage from here on. `visit` counts the visits of it, from 1."""

    stage: str
    visit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StageLeft(Record):
    """The visit is over; `result` is what it brought, `to` the stage that is to follow."""

    stage: str
    visit: int
    result: str | None = None
    to: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InteractionOpened(Record):
    """A question to a human; durable before anybody is shown it. See `core.interactions`."""

    interaction_id: str
    kind: str
    prompt: str
    options: list[str]
    binds_to: Json
    ask: Json
    expires_at: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InteractionAnswered(Record):
    """The first durable answer counts, for ever; durable before it is acknowledged."""

    interaction_id: str
    answer: Json
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InteractionClosed(Record):
    """Nobody is to answer any more, and why."""

    interaction_id: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint(Record):
    """The whole folded state. Another `fold` version reads the journal from its start."""

    state: Json
    fold: int = FOLD_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsChanged(Record):
    """The effective settings as a whole, from here on. `grants`: see `core.permissions`."""

    by: str
    limits: Json
    grants: list[Json] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequested(Record):
    """A cancel was asked; whoever works on the run next only carries it on to the end."""

    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPaused(Record):
    by: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResumed(Record):
    by: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunParked(Record):
    """The run needs something from its environment. `retry_at` None: not before somebody asks."""

    by: str
    reason: str
    needs: Needs
    retry_at: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunQuarantined(Record):
    by: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonDraining(Record):
    """A clean shutdown reached this run; afterwards this process appends results only."""

    in_flight: list[str] = field(default_factory=list)
    active_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded(Record):
    """The end of the run's life. `status` is completed, failed or cancelled."""

    status: str
    reason: str
    by: str = "daemon"
    result: str | None = None


def _types_of(annotation: Any) -> tuple[type, ...]:
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        return tuple(t for part in typing.get_args(annotation) for t in _types_of(part))
    origin = typing.get_origin(annotation) or annotation
    if origin is float:
        return (float, int)
    return (str,) if issubclass(origin, str) else (origin,)


class Shape:
    """The members that a line of one type must have, and their JSON types."""

    __slots__ = ("optional", "required")

    def __init__(self, cls: type[Record]) -> None:
        hints = typing.get_type_hints(cls)
        self.required: list[tuple[str, tuple[type, ...]]] = []
        self.optional: list[tuple[str, tuple[type, ...]]] = []
        for f in fields(cls):
            has_default = f.default is not _MISSING or f.default_factory is not _MISSING
            (self.optional if has_default else self.required).append((f.name, _types_of(hints[f.name])))

    def problem_with(self, line: Json) -> str | None:
        for name, allowed in self.required:
            if type(line.get(name)) not in allowed:
                return f"{name!r} is missing or has another type"
        for name, allowed in self.optional:
            if name in line and type(line[name]) not in allowed:
                return f"{name!r} has another type"
        return None


_MISSING = RunStarted.__dataclass_fields__["run_id"].default

RECORD_TYPES: dict[str, type[Record]] = {cls.__name__: cls for cls in Record.__subclasses__()}

_NAMES: dict[str, tuple[str, ...]] = {name: tuple(f.name for f in fields(cls)) for name, cls in RECORD_TYPES.items()}

_SHAPES: dict[str, Shape] = {name: Shape(cls) for name, cls in RECORD_TYPES.items()}


def problem_with(line: Json) -> str | None:
    """Say why a decoded line of a known type cannot be folded; None when it can, or when its type is unknown."""
    shape = _SHAPES.get(line["type"])
    return shape.problem_with(line) if shape else None
