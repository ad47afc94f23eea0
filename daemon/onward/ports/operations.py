"""What can be asked of the daemon: the API is a thin shell over this, the supervisor implements it."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Protocol

Json = dict[str, Any]

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""The media type of `Operations.metrics`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRequest:
    """A run to start. `agent` None: the configured default. `model` overrides the definition's.

    `limits` override single limits of the definition. The same `idempotency_key` gives the same run.
    """

    task: str
    workspace: str
    by: str
    agent: str | None = None
    model: str | None = None
    on_restart: str | None = None
    limits: Json = field(default_factory=dict)
    idempotency_key: str | None = None


class Operations(Protocol):
    """The daemon, as its clients see it. A run is shown as its index (the members of meta.json, always current)."""

    async def start_run(self, request: StartRequest) -> tuple[Json, bool]:
        """Start a run; it is durable when this returns. The flag says whether it is new (False: the key was known).

        Raises:
            BadRequest: No such agent, no usable model, or the workspace cannot be used.
            Conflict: The idempotency key was used for another request.
            StoreError: The disk did not take it; nothing was started.
        """
        ...

    async def list_runs(self, statuses: frozenset[str] | None = None) -> list[Json]:
        """Return all runs, newest first; a run that cannot be read is listed as `damaged` with `error`."""
        ...

    async def get_run(self, run_id: str) -> Json:
        """Return one run in full: its index plus `task` in full, `limits`, `calls`, `damage`, `revivals`, `result`.

        Raises:
            NotFound: There is none.
            Unreadable: It is there but cannot be read.
        """
        ...

    async def records(self, run_id: str, *, after: int = 0, limit: int = 1000) -> list[Json]:
        """Return the durable records with seq > `after`, at most `limit`, in order.

        Raises:
            NotFound, Unreadable: As `get_run`.
            Conflict: The daemon died with the run in hand: its journal is not read before it is revived.
        """
        ...

    async def send(self, run_id: str, text: str, *, by: str, message_id: str | None = None) -> Json:
        """Say something to a run; it is durable when this returns. Returns the run and `message_id`.

        The same `message_id` is the same success. A message that comes while tools run is seen after their results.

        Raises:
            NotFound, Unreadable: As `get_run`.
            BadRequest: There is nothing in it, or too much, or its id could be one of Onward's own.
            Conflict: The run is over, or the id was used for another text.
            StoreError: The disk did not take it.
        """
        ...

    async def pause(self, run_id: str, *, by: str, reason: str = "") -> Json:
        """Begin nothing new until `resume`: a request that is out is dropped, calls that run come to their end.

        Raises as `send`. A run that is paused already is the same success.
        """
        ...

    async def resume(self, run_id: str, *, by: str, add: Json | None = None) -> Json:
        """Go on with a paused or parked run, or ask a model that is cooling down now. `add` raises single limits.

        Raises as `send`; Conflict also for a quarantined or damaged run and for a limit that was not set.
        """
        ...

    async def cancel(self, run_id: str, *, by: str) -> Json:
        """End a run: durable when this returns, then its commands are ended and it ends as `cancelled`.

        Raises as `send`, except that a run that was cancelled already is the same success.
        """
        ...

    async def revive(self, run_id: str, *, by: str, max_revivals: int | None = None) -> Json:
        """Bring back a quarantined, failed, paused, parked, damaged or interrupted run; all its counts begin anew.

        Durable when this returns. Returns the run and `revival` (`core.inspection.Revival`); of a run that is being
        worked on, with `ok` false and the reason `live`. `max_revivals`: at most so many charged revivals so far.

        Raises:
            NotFound, Unreadable: As `get_run`.
            Conflict: It cannot be revived, and why.
            StoreError: The disk did not take it.
        """
        ...

    async def interactions(self, run_id: str | None = None) -> list[Json]:
        """Return the questions that wait for a human, of one run or of all, the oldest first.

        Each has run_id, interaction_id, kind, prompt, options, binds_to, ask, asked_at, expires_at, agent, advisory.
        """
        ...

    async def answer(self, run_id: str, interaction_id: str, answer: Json, *, by: str) -> Json:
        """Answer a question; durable when this returns. The first durable answer counts.

        The same answer again is the same success. `answer`: see `core.interactions.checked`.

        Raises:
            NotFound: No such run or question.
            BadRequest: It does not answer this question; the message says what would.
            Conflict: It was answered otherwise (the message says how), or is no longer open.
        """
        ...

    async def agents(self) -> Json:
        """Return `agents` (name, description, model, kind, of each) and `problems` (file, line, what, remedy)."""
        ...

    async def reload(self) -> Json:
        """Read the configuration again; a bad one changes nothing.

        Returns `ok`, `problems`, `loaded_at`, and `restart_needed`: changed settings that the next start will use.
        """
        ...

    def watch(self, run_id: str, *, after: int = 0, deltas: bool = False) -> AsyncIterator[Json]:
        """Yield durable records with seq > `after` as they come, without a gap; ends after the run's RunEnded.

        With `deltas` also `{"delta": text}` for pieces of an answer that is being written: some may be lost, and the
        turn's record supersedes them.

        The first step raises as `records`.
        """
        ...

    def watch_all(self, *, after: str | None = None) -> AsyncIterator[Json]:
        """Yield `{"id": "<epoch>:<n>", "run": index}` for every change of a run's status, as it comes; never ends.

        `{"id"}` without a run means that changes are missing and the list has to be read anew: it comes for `after`
        None, for one of another life of the daemon, and when a reader was so slow that changes were dropped.
        """
        ...

    async def daemon(self) -> Json:
        """Return version, pid, instance, uptime_s, runs (count by status), ready, recovery (the report), limits.

        `config` is what `reload` returns; `isolation` says how commands are kept apart: kind (`cgroups` or
        `process-groups`), reason, cgroup, limits_calls, and problem with remedy where something is wrong with it.
        `hold` says whether runs are held (`on`), why (`reasons`, by a word), and how many (`runs`).
        """
        ...

    async def hold(self, *, by: str, reason: str = "") -> Json:
        """Enter no run any more, over restarts too, until `release`; those at work go on until they rest.

        Durable when it returns. Idempotent. Returns what `daemon` does.

        Raises:
            StoreError: The disk did not take it.
        """
        ...

    async def release(self, run_id: str | None = None, *, by: str) -> Json:
        """Let one held run go on here, or all; durable when it returns. Idempotent. Returns what `daemon` does.

        Raises:
            NotFound: There is no such run.
            StoreError: The disk did not take it; what was held still is.
        """
        ...

    def metrics(self) -> str:
        """Return what was counted and measured, in the text format of Prometheus. No run ids."""
        ...

    async def stop(self, *, leave_running: bool) -> None:
        """Begin a drain; returns at once. Commands in flight are ended unless `leave_running`."""
        ...
