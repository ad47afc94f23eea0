"""A tool: one named act that a model can ask for."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from onward.core.vocabulary import Effect, Outcome
from onward.ports.process import ProcessSpawner


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """What the model is told about a tool, and what Onward knows of its effect. `parameters` is a JSON schema."""

    name: str
    description: str
    parameters: dict[str, Any]
    effect: Effect
    runs_process: bool = False
    """True when the call runs under the launcher, so that it outlives the daemon and leaves evidence in `call_dir`."""
    stoppable: bool = False
    """True when a call of this process is given up at once for a cancel, and any other only after a grace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """Where and for whom a call runs. `env` is the whole environment for a command; `deadline_s` None is no limit."""

    run_id: str
    call_id: str
    workspace: Path
    calls_dir: Path
    runs_lock: Path
    spawner: ProcessSpawner
    env: dict[str, str] = field(repr=False)
    deadline_s: float | None = None
    orphan_grace_s: float = 600.0

    @property
    def call_dir(self) -> Path:
        """Where a command of this call leaves its evidence."""
        return self.calls_dir / self.call_id


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """What a call brought: `text` is what the model sees (cleaned, at most 64 KiB of UTF-8).

    `full` is the whole output where `text` is only an excerpt of it. `ends_run` is set by `finish` alone: the status
    with which the run is to end.
    """

    text: str
    outcome: Outcome = Outcome.OK
    reason: str | None = None
    evidence: dict[str, Any] | None = None
    full: bytes | None = None
    ends_run: str | None = None
    moves_to: str | None = None
    """Set by `transition` alone: the stage that comes next."""

    @property
    def is_error(self) -> bool:
        return self.outcome is not Outcome.OK


class Tool(Protocol):
    """One tool. A call never raises for what the model got wrong: that is an error result."""

    @property
    def spec(self) -> ToolSpec: ...

    async def call(self, context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
        """Run one call to its end.

        Raises:
            OSError: The call could not be started at all (its effect did not happen).
        """
        ...
