"""How a run begins: from a request to its first record, which is durable before anything is said; once for each key."""

import hashlib
import os
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import orjson
from pydantic import ValidationError

from onward import __version__
from onward.config.agents import AgentDefinition, Limits, definition_hash, load_agents
from onward.config.documents import dotted, said
from onward.core.fold import apply
from onward.core.ids import make_run_id
from onward.core.index import index_of
from onward.core.records import Json, RunStarted
from onward.core.state import RunState
from onward.core.text import clean, clean_json
from onward.core.times import stamp
from onward.errors import BadRequest, Conflict, NotFound, Refused
from onward.ports.clock import Clock
from onward.ports.operations import StartRequest
from onward.ports.store import RunStore
from onward.supervisor.drain import Drain
from onward.supervisor.entries import Entries, Entry
from onward.supervisor.models import Models
from onward.supervisor.workspaces import Seen, Workspaces

MAX_TASK_BYTES = 1024 * 1024
_REMEDY = (
    "; a service of the machine may write below its own workspaces only, and where `onward service allow-path` says"
)


class Starting:
    """Gives birth to runs, and lets them come in."""

    def __init__(
        self,
        *,
        entries: Entries,
        store: RunStore,
        models: Models,
        workspaces: Workspaces,
        clock: Clock,
        agent_dirs: Sequence[Path],
        default_agent: str,
        drain: Drain,
        enter: Callable[[Entry], None],
    ) -> None:
        self.default_agent = default_agent
        self._entries = entries
        self._store = store
        self._models = models
        self._workspaces = workspaces
        self._clock = clock
        self._agent_dirs = agent_dirs
        self._drain = drain
        self._enter = enter
        self._under_way: dict[str, anyio.Lock] = {}

    async def start_run(self, request: StartRequest) -> tuple[Json, bool]:
        """Implements `onward.ports.operations.Operations.start_run`."""
        key = request.idempotency_key
        if key is None:
            return await self._start(request), True
        async with self._under_way.setdefault(key, anyio.Lock()):
            try:
                if (known := self._entries.started_by(key)) is None:
                    return await self._start(request), True
            finally:
                if not self._under_way[key].statistics().tasks_waiting:
                    del self._under_way[key]
        first = [] if known.suspended else await self._store.records(known.run_id, after=0, limit=1)
        if first and first[0].get("request_hash") != request_hash(request):
            raise Conflict(f"the idempotency key {key!r} was used for another request, which started {known.run_id}")
        return known.shown(), False

    async def agents(self) -> Json:
        """Implements `onward.ports.operations.Operations.agents`."""
        found, problems = await anyio.to_thread.run_sync(load_agents, self._agent_dirs)
        shown = [
            {"name": name, "kind": agent.kind, "description": agent.description, "model": agent.model}
            for name, agent in sorted(found.items())
        ]
        told = [problem.to_json() for problem in problems]
        return {"agents": shown, "default": self.default_agent, "problems": told}

    async def _start(self, request: StartRequest) -> Json:
        if self._drain.on:
            raise Refused("the daemon is being stopped; start the run again when it is back")
        name = request.agent or self.default_agent
        workspace = await self._workspace(request.workspace)
        record = await anyio.to_thread.run_sync(self._first_record, request, name, workspace)
        await self._store.create(record)
        entry = self._entries.add(record.run_id, first_index({**record.to_json(), "ts": stamp(self._clock.now())}))
        self._enter(entry)
        return entry.shown()

    async def _workspace(self, path: str) -> Seen:
        if not os.path.isabs(path):
            raise BadRequest(f"the workspace {path!r} is no absolute path")
        seen = await self._workspaces.look_at(path)
        if seen is None:
            raise BadRequest(f"the workspace {path!r} does not answer: is the file system that it lies on away?")
        if not seen.is_dir:
            raise BadRequest(f"the workspace {path!r} is no directory that the daemon can see{_REMEDY}")
        if not seen.may_write:
            raise BadRequest(f"the workspace {path!r} cannot be written by the daemon{_REMEDY}")
        return seen

    def _first_record(self, request: StartRequest, name: str, workspace: Seen) -> RunStarted:
        """Return what a run of this agent begins with. Blocks."""
        definition = self._agent(name)
        model = self._models.check(request.model or definition.model, definition.fallback)
        run_id = make_run_id(name, int(self._clock.now().timestamp() * 1000), secrets.randbits(40))
        return started(run_id, request, name, definition, model, workspace)

    def _agent(self, name: str) -> AgentDefinition:
        agents, problems = load_agents(self._agent_dirs)
        if (found := agents.get(name)) is not None:
            return found
        wrong = [str(problem) for problem in problems if problem.file.stem == name]
        if wrong:
            raise BadRequest(f"the agent {name!r} cannot be used: " + "; ".join(wrong))
        raise NotFound(f"there is no agent {name[:40]!r}; known: {', '.join(sorted(agents))}")


def first_index(record: Json) -> Json:
    """Return the index of a run that holds only its first record."""
    state = RunState()
    apply(state, {**record, "seq": 1})
    return index_of(state)


def started(
    run_id: str, request: StartRequest, name: str, definition: AgentDefinition, model: str, workspace: Seen
) -> RunStarted:
    """Return the run's first record: the definition is pinned, limits of the request go before its own.

    Raises:
        BadRequest: The task or a limit cannot be used.
    """
    task = clean(request.task)
    if not task.strip():
        raise BadRequest("the task is empty")
    if len(task.encode()) > MAX_TASK_BYTES:
        raise BadRequest(f"the task has more than {MAX_TASK_BYTES} bytes; put it into a file of the workspace")
    return RunStarted(
        run_id=run_id,
        kind=definition.kind,
        agent=definition.pinned(),
        agent_name=name,
        agent_hash=definition_hash(definition),
        task=task,
        workspace=workspace.path,
        workspace_is_mount=workspace.is_mount,
        limits=_limits(definition.limits, request.limits),
        by=request.by,
        on_restart=_on_restart(request.on_restart or definition.on_restart),
        version=__version__,
        model=model,
        idempotency_key=request.idempotency_key,
        request_hash=request_hash(request) if request.idempotency_key else None,
    )


def request_hash(request: StartRequest) -> str:
    """Return what tells a repeated request from another one that comes with the same idempotency key."""
    asked = [getattr(request, name) for name in ("task", "workspace", "agent", "model", "on_restart", "limits")]
    return hashlib.sha256(orjson.dumps(clean_json(asked), option=orjson.OPT_SORT_KEYS)).hexdigest()


def _limits(own: Limits, asked: dict[str, Any]) -> Json:
    try:
        limits = Limits.model_validate({**own.model_dump(), **asked})
    except ValidationError as error:
        wrong = "; ".join(f"{dotted(item['loc'])}: {said(item)}" for item in error.errors())
        raise BadRequest(f"a limit cannot be used: {wrong}") from error
    return limits.model_dump(exclude_none=True)


def _on_restart(word: str) -> str:
    if word not in ("resume", "ask", "stop"):
        raise BadRequest(f"on_restart is resume, ask or stop, not {word!r}")
    return word
