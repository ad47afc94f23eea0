"""A daemon in memory: `Operations` without a disk, a model or a process. For tests of clients and of the API."""

import os
from collections.abc import AsyncIterator, Iterable
from typing import Any

import anyio
import orjson

from onward.core import fold
from onward.core.ids import make_run_id
from onward.core.index import index_of, view_of
from onward.core.records import Record, RunStarted
from onward.core.state import RunState
from onward.core.status import TERMINAL
from onward.errors import BadRequest, Conflict, NotFound
from onward.ports.operations import StartRequest

Json = dict[str, Any]


class FakeOperations:
    """Keeps runs as lists of records, folded as they come; whatever is appended is durable at once.

    `script` is appended to every run that is started: without it a run stays active until the test says more.
    """

    def __init__(self, script: Iterable[Record] = ()) -> None:
        self.script = tuple(script)
        self.runs: dict[str, RunState] = {}
        self.journals: dict[str, list[Json]] = {}
        self.requests: dict[str, StartRequest] = {}
        self.ready = True
        self.stops: list[bool] = []
        self.pid = os.getpid()
        self.recovery: Json = {"done": True, "waiting": 0, "interrupted": 0, "counts": {}, "reasons": []}
        self.watchers = 0
        self._news = anyio.Event()

    def append(self, run_id: str, record: Record, *, ts: str = "2026-01-02T03:04:05.000000Z") -> int:
        """Add a record to a run's journal, tell its watchers and return its seq. Call it on the event loop."""
        journal = self.journals[run_id]
        # As it would be read back: plain JSON, no enumerations.
        line = orjson.loads(orjson.dumps({"seq": len(journal) + 1, "ts": ts, **record.to_json()}))
        fold.apply(self.runs[run_id], line)
        journal.append(line)
        self._news.set()
        self._news = anyio.Event()
        return len(journal)

    async def start_run(self, request: StartRequest) -> tuple[Json, bool]:
        if request.idempotency_key and (known := self._started_before(request)):
            return index_of(self.runs[known]), False
        agent = request.agent or "worker"
        if agent == "nobody":
            raise BadRequest("there is no agent 'nobody'")
        run_id = make_run_id(agent, len(self.runs) + 1, 0)
        self.requests[run_id] = request
        self.journals[run_id] = []
        self.runs[run_id] = RunState()
        self.append(run_id, _started(run_id, agent, request))
        for record in self.script:
            self.append(run_id, record)
        return index_of(self.runs[run_id]), True

    async def list_runs(self, statuses: frozenset[str] | None = None) -> list[Json]:
        runs = reversed(self.runs.values())
        return [index_of(run) for run in runs if statuses is None or run.status in statuses]

    async def get_run(self, run_id: str) -> Json:
        run = self._run(run_id)
        return view_of(run, index_of(run))

    async def records(self, run_id: str, *, after: int = 0, limit: int = 1000) -> list[Json]:
        self._run(run_id)
        return self.journals[run_id][after : after + limit]

    async def watch(self, run_id: str, *, after: int = 0) -> AsyncIterator[Json]:
        run = self._run(run_id)
        self.watchers += 1
        try:
            while True:
                news = self._news
                for line in self.journals[run_id][after:]:
                    after = line["seq"]
                    yield line
                if run.status in TERMINAL:
                    return
                await news.wait()
        finally:
            self.watchers -= 1

    async def daemon(self) -> Json:
        counts: dict[str, int] = {}
        for run in self.runs.values():
            counts[str(run.status)] = counts.get(str(run.status), 0) + 1
        known = {"version": "0.1.0", "pid": self.pid, "instance": "fake", "uptime_s": 1.0}
        return {**known, "runs": counts, "ready": self.ready, "recovery": self.recovery, "limits": {}}

    async def stop(self, *, leave_running: bool) -> None:
        self.stops.append(leave_running)

    def _run(self, run_id: str) -> RunState:
        if run_id not in self.runs:
            raise NotFound(f"there is no run {run_id!r}")
        return self.runs[run_id]

    def _started_before(self, request: StartRequest) -> str | None:
        for run_id, known in self.requests.items():
            if known.idempotency_key == request.idempotency_key:
                if known != request:
                    raise Conflict(f"the key {request.idempotency_key!r} was used for another request")
                return run_id
        return None


def _started(run_id: str, agent: str, request: StartRequest) -> RunStarted:
    return RunStarted(
        run_id=run_id,
        kind="native",
        agent={},
        agent_name=agent,
        agent_hash="0" * 64,
        task=request.task,
        workspace=request.workspace,
        limits=request.limits,
        by=request.by,
        on_restart=request.on_restart or "resume",
        version="0.1.0",
        model=request.model,
        idempotency_key=request.idempotency_key,
    )
