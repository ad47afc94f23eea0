"""A daemon in memory: `Operations` without a disk, a model or a process. For tests of clients and of the API."""

import os
from collections.abc import AsyncIterator, Iterable
from dataclasses import asdict
from typing import Any

import anyio
import orjson

from onward.core import fold
from onward.core.ids import check_message_id, make_run_id
from onward.core.index import index_of, questions_of, view_of
from onward.core.inspection import Revival, by_hand, revive_refused, revived
from onward.core.interactions import checked, winner
from onward.core.records import (
    InteractionAnswered,
    MessageAdded,
    Record,
    RunEnded,
    RunPaused,
    RunResumed,
    RunStarted,
    SettingsChanged,
)
from onward.core.state import RunState
from onward.core.status import TERMINAL, Status
from onward.core.vocabulary import Source
from onward.errors import BadRequest, Conflict, NotFound
from onward.ports.operations import StartRequest

Json = dict[str, Any]


class FakeOperations:
    """Keeps runs as lists of records, folded as they come; whatever is appended is durable at once.

    `script` is appended to every run that is started: without it a run stays active until the test says more.
    `definition` is what runs pin as their agent's. An answer lets a parked run go on, whatever it was.
    """

    def __init__(self, script: Iterable[Record] = ()) -> None:
        self.script = tuple(script)
        self.runs: dict[str, RunState] = {}
        self.journals: dict[str, list[Json]] = {}
        self.requests: dict[str, StartRequest] = {}
        self.definition: Json = {}
        self.ready = True
        self.stops: list[bool] = []
        self.pid = os.getpid()
        self.recovery: Json = {"done": True, "waiting": 0, "interrupted": 0, "counts": {}, "reasons": []}
        self.watchers = 0
        self.config: Json = {"ok": True, "problems": [], "loaded_at": None, "restart_needed": []}
        self.isolation: Json | None = None
        self.held: Json = {"on": False, "reasons": {}, "runs": 0}
        self.releases: list[str | None] = []
        self.news: list[Json] = []
        self.pieces: dict[str, list[str]] = {}
        self._news = anyio.Event()

    def append(self, run_id: str, record: Record, *, ts: str = "2026-01-02T03:04:05.000000Z") -> int:
        """Add a record to a run's journal, tell its watchers and return its seq. Call it on the event loop."""
        journal = self.journals[run_id]
        # As it would be read back: plain JSON, no enumerations.
        line = orjson.loads(orjson.dumps({"seq": len(journal) + 1, "ts": ts, **record.to_json()}))
        fold.apply(self.runs[run_id], line)
        journal.append(line)
        self.pieces[run_id] = []
        self.news.append({"id": f"fake:{len(self.news) + 1}", "run": index_of(self.runs[run_id])})
        self._wake()
        return len(journal)

    def tell_delta(self, run_id: str, text: str) -> None:
        """Give a piece of an answer to those who watch. Call it on the event loop."""
        self.pieces[run_id].append(text)
        self._wake()

    def _wake(self) -> None:
        self._news.set()
        self._news = anyio.Event()

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
        self.append(run_id, _started(run_id, agent, request, self.definition))
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

    async def send(self, run_id: str, text: str, *, by: str, message_id: str | None = None) -> Json:
        run = self._going_on(run_id)
        message_id = message_id or f"m{len(self.journals[run_id])}"
        check_message_id(message_id)
        said = [line for line in self.journals[run_id] if line.get("message_id") == message_id]
        if said and said[0]["content"] != text:
            raise Conflict(f"the message id {message_id!r} was used for another text")
        if not said:
            self.append(run_id, MessageAdded(message_id=message_id, source=Source.HUMAN, content=text, by=by))
        return {**index_of(run), "message_id": message_id}

    async def pause(self, run_id: str, *, by: str, reason: str = "") -> Json:
        run = self._going_on(run_id)
        if run.status is not Status.PAUSED:
            self.append(run_id, RunPaused(by=by, reason=reason))
        return index_of(run)

    async def resume(self, run_id: str, *, by: str, add: Json | None = None) -> Json:
        run = self._going_on(run_id)
        if run.status is Status.QUARANTINED:
            raise Conflict(f"{run_id} is quarantined")
        if add:
            limits = {**run.limits, **{name: run.limits.get(name, 0) + more for name, more in add.items()}}
            self.append(run_id, SettingsChanged(by=by, limits=limits))
        if run.status is not Status.ACTIVE:
            self.append(run_id, RunResumed(by=by, reason="asked"))
        return index_of(run)

    async def revive(self, run_id: str, *, by: str, max_revivals: int | None = None) -> Json:
        state = self._run(run_id)
        if refused := revive_refused(state, loss=None, live=False, cap=max_revivals):
            raise Conflict(f"{run_id} is not revived: {refused.reason} ({refused.detail})")
        told = Revival(ok=False, run_id=run_id, reason="live")
        if state.status is not Status.ACTIVE:
            told = revived(state, loss=None)
            for record in by_hand(state, by):
                self.append(run_id, record)
        return {**index_of(self.runs[run_id]), "revival": asdict(told)}

    async def cancel(self, run_id: str, *, by: str) -> Json:
        run = self._run(run_id)
        if run.status is not Status.CANCELLED:
            self._going_on(run_id)
            self.append(run_id, RunEnded(status="cancelled", reason="asked", by=by))
        return index_of(run)

    async def interactions(self, run_id: str | None = None) -> list[Json]:
        runs = self.runs.values() if run_id is None else [self._run(run_id)]
        return [question for run in runs for question in questions_of(run)]

    async def answer(self, run_id: str, interaction_id: str, answer: Json, *, by: str) -> Json:
        run = self._run(run_id)
        question = run.interactions.get(interaction_id)
        if question is None:
            raise NotFound(f"{run_id} has asked no question {interaction_id!r}")
        value = checked(question, answer)
        if question.answer is None:
            self._going_on(run_id)
            if question.closed is not None:
                raise Conflict(f"{interaction_id} is no longer open: {question.closed}")
            self.append(run_id, InteractionAnswered(interaction_id=interaction_id, answer=value, by=by))
            if run.status is Status.PARKED:
                self.append(run_id, RunResumed(by=by, reason="answered"))
        elif question.answer != value:
            raise Conflict(winner(question))
        return {**index_of(run), "interaction_id": interaction_id, "answer": value}

    async def agents(self) -> Json:
        known = {"name": "worker", "description": "", "model": None, "kind": "native"}
        return {"agents": [known], "problems": []}

    async def reload(self) -> Json:
        return self.config

    async def watch(self, run_id: str, *, after: int = 0, deltas: bool = False) -> AsyncIterator[Json]:
        run = self._run(run_id)
        self.watchers += 1
        told: tuple[int, int] = (0, 0)
        try:
            while True:
                news = self._news
                for line in self.journals[run_id][after:]:
                    after = line["seq"]
                    yield line
                told = (after, told[1] if told[0] == after else 0)
                for piece in self.pieces[run_id][told[1] :] if deltas else ():
                    told = (after, told[1] + 1)
                    yield {"delta": piece}
                if run.status in TERMINAL:
                    return
                await news.wait()
        finally:
            self.watchers -= 1

    async def watch_all(self, *, after: str | None = None) -> AsyncIterator[Json]:
        epoch, _, number = (after or "").partition(":")
        at = int(number) if epoch == "fake" else len(self.news)
        if epoch != "fake":
            yield {"id": f"fake:{at}"}
        while True:
            news = self._news
            for item in self.news[at:]:
                at += 1
                yield item
            await news.wait()

    async def daemon(self) -> Json:
        counts: dict[str, int] = {}
        for run in self.runs.values():
            counts[str(run.status)] = counts.get(str(run.status), 0) + 1
        known: Json = {"version": "0.1.0", "pid": self.pid, "instance": "fake", "uptime_s": 1.0}
        known |= {"runs": counts, "ready": self.ready, "recovery": self.recovery, "limits": {}, "config": self.config}
        known["hold"] = self.held
        known["isolation"] = self.isolation
        return known

    async def hold(self, *, by: str, reason: str = "") -> Json:
        self.held = {"on": True, "reasons": {"asked": reason or f"asked for by {by}"}, "runs": 0}
        return await self.daemon()

    async def release(self, run_id: str | None = None, *, by: str) -> Json:
        if run_id is not None:
            self._run(run_id)
        else:
            self.held = {"on": False, "reasons": {}, "runs": 0}
        self.releases.append(run_id)
        return await self.daemon()

    def metrics(self) -> str:
        return f"onward_runs {len(self.runs)}\n"

    async def stop(self, *, leave_running: bool) -> None:
        self.stops.append(leave_running)

    def _run(self, run_id: str) -> RunState:
        if run_id not in self.runs:
            raise NotFound(f"there is no run {run_id!r}")
        return self.runs[run_id]

    def _going_on(self, run_id: str) -> RunState:
        run = self._run(run_id)
        if run.status in TERMINAL:
            raise Conflict(f"{run_id} is over ({run.status})")
        return run

    def _started_before(self, request: StartRequest) -> str | None:
        for run_id, known in self.requests.items():
            if known.idempotency_key == request.idempotency_key:
                if known != request:
                    raise Conflict(f"the key {request.idempotency_key!r} was used for another request")
                return run_id
        return None


def _started(run_id: str, agent: str, request: StartRequest, definition: Json) -> RunStarted:
    return RunStarted(
        run_id=run_id,
        kind="native",
        agent=definition,
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
