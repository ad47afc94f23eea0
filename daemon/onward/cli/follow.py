"""Following a run across restarts of the daemon: every record once, in order."""

import http.client
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any

from onward.cli.client import SILENCE_S, Client, TimedOut
from onward.errors import OnwardError, Unreachable

PATIENCE_S = 60.0
_PAUSES_S = (0.05, 0.1, 0.2, 0.5, 1.0)

Json = dict[str, Any]

ENDED = frozenset({"completed", "failed", "cancelled"})
STOPPED = ENDED | {"paused", "parked", "quarantined", "damaged"}
_PEOPLE = ("human", "release")
_STOPS = frozenset({"RunEnded", "RunPaused", "RunParked", "RunQuarantined", "InteractionOpened"})


def stands_still(run: Json) -> bool:
    """Say whether a run does nothing before somebody does something."""
    return run["status"] in STOPPED or (run["status"] == "waiting" and run.get("waiting_on") in _PEOPLE)


def exit_code(run: Json) -> int:
    """Return the exit code that tells how a run stands."""
    if run["status"] in ENDED:
        return 0 if run["status"] == "completed" else 1
    return 6 if run.get("needs") == "budget" else 5


@dataclass(slots=True)
class Follower:
    """Follows one run from a seq on. `at` is the seq of the last record that was yielded.

    `say` is told when the daemon is gone and when it is back. `on_delta` is given the pieces of an answer that is being
    written; the next record supersedes them. `deadline` is a monotonic time; None: no limit.
    """

    client: Client
    run_id: str
    at: int = 0
    say: Callable[[str], None] = lambda _: None
    on_delta: Callable[[str], None] | None = None
    deadline: float | None = None
    _lost_at: float | None = None
    _failures: int = 0

    def until_ended(self) -> Iterator[Json]:
        """Yield records until the run has ended.

        Raises:
            TimedOut: The deadline passed.
            Unreachable: The daemon did not come back in `PATIENCE_S`.
        """
        return (record for record in self._records() if record is not None)

    def until_stopped(self) -> Iterator[Json]:
        """Yield records until the run has ended or stands still, for a human too; raises as `until_ended`.

        A run that was parked long ago and goes on has that in its past: its present decides, which is asked for at
        such a record, and at every heartbeat for what stands in no record (a full disk, a quarantine by the daemon).
        """
        ask_at: int | None = None
        questions = False  # while calls run beside an open question, the last of them to end makes the run stand still
        for record in self._records():
            if record is not None:
                yield record
            kind = None if record is None else record["type"]
            if kind is None or kind in _STOPS or self.at == ask_at or (questions and kind == "ToolCallDone"):
                run = self.run()
                if stands_still(run) and self.at >= run.get("seq", 0):
                    return
                ask_at, questions = run.get("seq"), bool(run.get("questions"))

    def _records(self) -> Iterator[Json | None]:
        while True:
            try:
                streamed = yield from self._read()
                if self._is_over():
                    return
                self._pause(gone=streamed)
            except TimeoutError:
                self._check_deadline()
            except (OSError, http.client.HTTPException, Unreachable):
                self._pause(gone=True)

    def _read(self) -> Generator[Json | None, None, bool]:
        """Yield what comes until the daemon ends the stream; False: there was none free, and this was a look."""
        try:
            yield from self._stream()
        except OnwardError as error:
            if error.code != "busy":
                raise
            yield from self._page()
            return False
        return True

    def run(self) -> Json:
        """Return the run as it stands."""
        return self.client.get(f"/v1/runs/{self.run_id}")

    def _stream(self) -> Iterator[Json | None]:
        deltas = self.on_delta is not None
        for record in self.client.stream(self.run_id, self.at, self._silence_s, deltas=deltas):
            self._is_back()
            if record is None:
                yield None
            elif "seq" not in record:
                if self.on_delta is not None:
                    self.on_delta(str(record.get("delta", "")))
            elif record["seq"] > self.at:
                self.at = record["seq"]
                yield record

    def _page(self) -> Iterator[Json | None]:
        for record in self.client.records(self.run_id, self.at):
            self.at = record["seq"]
            yield record
        yield None

    def _is_over(self) -> bool:
        run = self.run()
        return run["status"] in ENDED and self.at >= run.get("seq", 0)

    def _silence_s(self) -> float:
        if self.deadline is None:
            return SILENCE_S
        self._check_deadline()
        return max(0.01, min(SILENCE_S, self.deadline - time.monotonic()))

    def _check_deadline(self) -> None:
        if self.deadline is not None and time.monotonic() >= self.deadline:
            raise TimedOut(f"{self.run_id} goes on; it was not waited for any longer")

    def _is_back(self) -> None:
        if self._lost_at is not None:
            self.say("the daemon is back")
        self._lost_at, self._failures = None, 0

    def _pause(self, *, gone: bool) -> None:
        self._check_deadline()
        now = time.monotonic()
        if self._lost_at is None and gone:
            self._lost_at = now
            self.say("the daemon is gone; waiting for it to come back")
        if self._lost_at is not None and now - self._lost_at > PATIENCE_S:
            raise Unreachable(f"the daemon did not come back; the run goes on with it: onward logs {self.run_id} -f")
        time.sleep(_PAUSES_S[min(self._failures, len(_PAUSES_S) - 1)])
        self._failures += 1
