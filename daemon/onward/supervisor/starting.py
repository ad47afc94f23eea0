"""From a request to the record that a run begins with."""

import hashlib
import os
from typing import Any

import orjson
from pydantic import ValidationError

from onward import __version__
from onward.config.agents import AgentDefinition, Limits, definition_hash
from onward.config.documents import dotted, said
from onward.core.records import Json, RunStarted
from onward.core.text import clean, clean_json
from onward.errors import BadRequest
from onward.ports.operations import StartRequest

MAX_TASK_BYTES = 1024 * 1024
_REMEDY = (
    "; a service of the machine may write below its own workspaces only, and where `onward service allow-path` says"
)


def started(run_id: str, request: StartRequest, name: str, definition: AgentDefinition, model: str) -> RunStarted:
    """Return the run's first record: the definition is pinned, limits of the request go before its own.

    Raises:
        BadRequest: The task, a limit or the workspace cannot be used.
    """
    task = clean(request.task)
    if not task.strip():
        raise BadRequest("the task is empty")
    if len(task.encode()) > MAX_TASK_BYTES:
        raise BadRequest(f"the task has more than {MAX_TASK_BYTES} bytes; put it into a file of the workspace")
    workspace = _workspace(request.workspace)
    return RunStarted(
        run_id=run_id,
        kind=definition.kind,
        agent=definition.pinned(),
        agent_name=name,
        agent_hash=definition_hash(definition),
        task=task,
        workspace=workspace,
        workspace_is_mount=os.path.ismount(workspace),
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


def _workspace(path: str) -> str:
    if not os.path.isabs(path):
        raise BadRequest(f"the workspace {path!r} is no absolute path")
    if not os.path.isdir(path):
        raise BadRequest(f"the workspace {path!r} is no directory that the daemon can see{_REMEDY}")
    if not os.access(path, os.W_OK | os.X_OK):
        raise BadRequest(f"the workspace {path!r} cannot be written by the daemon{_REMEDY}")
    return os.path.realpath(path)


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
