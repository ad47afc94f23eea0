"""Twenty runs that have side effects, and what must be true of them once they have ended."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.crash.journals import read_journal
from tests.crash.oracle import effect_problems, run_problems
from tests.crash.scenario import Turn, bump, effects, turn, write_script
from tests.support import until
from tests.systemd.service import HOME, Service

RUNS = 20
WAITING = "until [ -e go ]; do sleep 0.5; done; "


class World:
    """Runs of their own scripts, each by its idempotency key. They work in `workspaces/shared`."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.runs: dict[str, str] = {}
        self.scripts: dict[str, Path] = {}

    def start(self, turns: list[Turn], key: str, **members: Any) -> str:
        """Start a run; returns its id."""
        script = self.scripts[key] = write_script(self.service.home, turns, f"{key}.json")
        answer = self.service.ask_for(f"scripted/{HOME / script.name}", key=key, **members)
        assert answer.status in (200, 201), answer
        self.runs[key] = str(answer.body["run_id"])
        return self.runs[key]

    def start_all(self, count: int = RUNS) -> None:
        """Start runs of three turns with two calls each; the first call waits until it is let go."""
        for number in range(count):
            self.start_one(number)

    def start_one(self, number: int) -> str:
        return self.start(three_batches(f"r{number}"), f"r{number}")

    def let_go(self) -> None:
        (self.service.workspace / "go").touch()

    def until_in_first_batch(self) -> None:
        for run_id in self.runs.values():
            self.service.until_running(run_id)

    def until_ended(self, timeout_s: float = 100) -> None:
        """Wait until every run has ended by itself."""
        until(lambda: all(run["status"] in ("completed", "failed") for run in self.listed()), timeout_s)

    def listed(self) -> list[dict[str, object]]:
        found = self.service.listed()
        return [found[run_id] for run_id in self.runs.values()]

    def problems(self, *, besides: Sequence[str] = ()) -> list[str]:
        """Return what is wrong: none lost, none there besides, no effect doubled or denied."""
        service = self.service
        happened = Counter(effects(service.home / "workspaces"))
        problems = []
        for key, run_id in self.runs.items():
            journal = read_journal(service.runs / run_id)
            found = [*journal.problems, *run_problems(journal, self.scripts[key])]
            found += effect_problems(journal, happened)
            if found:
                found.append(f"the journal of {key}:\n{journal.story()}")
            problems += found
        if set(service.listed()) != {*self.runs.values(), *besides}:
            problems.append(f"the runs {set(service.listed())} are listed, {set(self.runs.values())} were started")
        return problems + [f"an effect that no journal knows: {key}" for key in happened]

    def outcomes(self) -> Counter[str]:
        """Count how the calls of all runs were settled."""
        return Counter(
            f"{done['outcome']} by {done['settled_by']}"
            for run_id in self.runs.values()
            for done in self.service.records(run_id, "ToolCallDone")
        )


def three_batches(key: str) -> list[Turn]:
    def one(number: int, each: str) -> Turn:
        return bump(f"{key}.{number}{each}", before=WAITING if number == 1 else "")

    return [turn("", one(number, "a"), one(number, "b")) for number in (1, 2, 3)]
