"""What clients send, checked: bodies, run ids, statuses. Unknown members are errors."""

from typing import Annotated, Any, Literal

from fastapi import Depends, Query
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from onward.config.numbers import Count, CountOrNone, Dollars
from onward.core.ids import RunId, parse_run_id
from onward.core.status import Status
from onward.errors import BadRequest


def _absolute(path: str) -> str:
    if not path.startswith("/") or "\0" in path:
        raise ValueError("must be an absolute path")
    return path


class Body(BaseModel):
    """A body: what it does not know is an error, and nothing is converted."""

    model_config = ConfigDict(extra="forbid", strict=True)


class StartRun(Body):
    """The body of `POST /v1/runs`."""

    task: Annotated[str, Field(min_length=1)]
    """What is to be done, in words."""
    workspace: Annotated[str, Field(max_length=4096), AfterValidator(_absolute)]
    """The directory to work in; an absolute path on the daemon's machine."""
    agent: Annotated[str, Field(max_length=64)] | None = None
    """The agent definition; None: the configured default."""
    model: Annotated[str, Field(max_length=4096)] | None = None
    """`PROVIDER/MODEL` instead of the definition's."""
    on_restart: Literal["resume", "ask", "stop"] | None = None
    """What happens after an interruption; None: as the definition says."""
    limits: dict[str, Any] = {}
    """Single limits of the definition, overridden."""


Key = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[!-~]+$")]
"""An Idempotency-Key."""
More = Count | Dollars


class SendMessage(Body):
    """The body of `POST /v1/runs/{id}/messages`."""

    text: Annotated[str, Field(min_length=1)]
    """What is said."""


class Pause(Body):
    """The body of `POST /v1/runs/{id}/pause`."""

    reason: Annotated[str, Field(max_length=2000)] = ""
    """Shown while the run is paused."""


class Resume(Body):
    """The body of `POST /v1/runs/{id}/resume`."""

    add: dict[str, More] = {}
    """By how much which limits of the run are raised: `{"cost_usd": 5, "turns": 100}`."""


class Revive(Body):
    """The body of `POST /v1/runs/{id}/revive`."""

    max_revivals: CountOrNone | None = None
    """Refuse when it was revived so often already; None: never."""


class Answer(Body):
    """The body of `POST /v1/interactions/{id}/answer`."""

    answer: dict[str, Any]
    """What the kind of the question wants: `{"decision": "approve"}`, `{"value": "text"}`, `{"add": {"turns": 9}}`."""


class Nothing(Body):
    """The body of a change that needs no words: `{}`."""


class HoldRuns(Body):
    """The body of `POST /v1/daemon/hold`."""

    reason: Annotated[str, Field(max_length=2000)] = ""
    """Shown while the runs are held."""


class ReleaseRuns(Body):
    """The body of `POST /v1/daemon/release`."""

    run_id: Annotated[str, Field(max_length=64)] | None = None
    """The one run to release; None: all of them."""


class StopDaemon(Body):
    """The body of `POST /v1/daemon/stop`."""

    leave_running: bool = False
    """Commands in flight go on and are adopted by the next daemon."""


async def run_id_of(run_id: str) -> RunId:
    """Return the id of the path, checked before it is used for anything.

    Raises:
        BadRequest: It is none.
    """
    return parse_run_id(run_id)


RunIdOf = Annotated[RunId, Depends(run_id_of)]
MOST_SEQ = (1 << 53) - 1
"""Up to here every program reads a JSON number as it was written."""
After = Annotated[int, Query(ge=0, le=MOST_SEQ)]


async def interaction_of(interaction_id: str) -> tuple[RunId, str]:
    """Return the run and the question of `RUN.QUESTION`; raises as `run_id_of`."""
    run_id, dot, question = interaction_id.rpartition(".")
    if not dot or not question:
        raise BadRequest(f"{interaction_id[:80]!r} is no question: it is written RUN.QUESTION, as in coder-abc.q3")
    return parse_run_id(run_id), question


def parse_statuses(values: list[str] | None) -> list[str]:
    """Return the statuses of `?status=a,b` or `?status=a&status=b`.

    Raises:
        BadRequest: One of them does not exist.
    """
    names = [name for value in values or () for name in value.split(",") if name]
    known = [str(status) for status in Status]
    if unknown := [name for name in names if name not in known]:
        raise BadRequest(f"there is no status {unknown[0][:80]!r}; there are: {', '.join(known)}")
    return names
