"""What can be asked about runs. It claims none, folds those that rest where it must, and changes nothing."""

from collections.abc import AsyncIterator

from onward.core.fold import NewerRecord
from onward.core.index import view_of
from onward.core.records import Json
from onward.core.replay import NotAJournal
from onward.errors import Conflict
from onward.ports.store import RunStore
from onward.supervisor.entries import Entries
from onward.supervisor.watching import follow


class Reading:
    """The reading half of `onward.ports.operations.Operations`, whose docstrings say what each returns."""

    def __init__(self, entries: Entries, store: RunStore) -> None:
        self._entries = entries
        self._store = store

    def list_runs(self, statuses: frozenset[str] | None) -> list[Json]:
        shown = [entry.shown() for entry in self._entries.values()]
        chosen = [index for index in shown if statuses is None or index["status"] in statuses]
        return sorted(chosen, key=lambda index: (str(index.get("created_at", "")), index["run_id"]), reverse=True)

    async def get_run(self, run_id: str) -> Json:
        entry = self._entries.of(run_id)
        if entry.loaded is not None:
            return view_of(entry.loaded.live.state, entry.shown())
        if entry.suspended is not None:
            return entry.shown()
        try:
            replay = await self._store.read(run_id)
        except (NotAJournal, NewerRecord) as error:
            return {**entry.shown(), "error": str(error)}
        return view_of(replay.state, entry.shown())

    async def records(self, run_id: str, *, after: int, limit: int) -> list[Json]:
        entry = self._entries.of(run_id)
        if entry.suspended is not None:
            raise Conflict(f"{run_id} is quarantined: {entry.suspended}. Bring it back: onward revive {run_id}")
        up_to = entry.loaded.live.durable_seq if entry.loaded is not None else None
        return await self._store.records(run_id, after=after, limit=limit, up_to=up_to)

    def watch(self, run_id: str, *, after: int, deltas: bool) -> AsyncIterator[Json]:
        async def read(seq: int, limit: int) -> list[Json]:
            return await self.records(run_id, after=seq, limit=limit)

        return follow(self._entries.of(run_id), read, after=after, deltas=deltas)

    def interactions(self, run_id: str | None) -> list[Json]:
        entries = self._entries.values() if run_id is None else [self._entries.of(run_id)]
        questions = [question for entry in entries for question in entry.open_questions()]
        return sorted(questions, key=lambda question: (question["asked_at"], question["run_id"]))
