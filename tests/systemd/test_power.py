"""Power cuts at random moments: runs come back without a human, nothing flushed is lost, no effect is doubled."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.crash.journals import read_journal
from tests.crash.scenario import Turn, bump, turn
from tests.e2e.instances import Json
from tests.support import until
from tests.systemd.machine import Machine
from tests.systemd.service import Service
from tests.systemd.world import RUNS, World

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SEED = int(os.environ.get("ONWARD_SWEEP_SEED", "0"))
CUTS = min(30, int(os.environ.get("ONWARD_SWEEP_SAMPLE", "0")) // 2 or 30)
LONGEST_LIFE_S = 3.0


@pytest.fixture
def machine(tmp_path: Path, units: Path, opt: Path) -> Iterator[Machine]:
    made = Machine(state=tmp_path / "state", units=units, opt=opt, enable=("onward.service",), disk=True)
    yield made
    made.close()


def test_runs_outlive_power_cuts_at_random_moments(up: Service) -> None:
    random = Random(SEED)
    world = World(up)
    for number in range(RUNS):
        # No limit of revivals: a run that loses its power three times before it gets on is not to blame for it here.
        world.start(many_turns(f"p{number}"), f"p{number}", limits={"max_revivals": 1000, "max_stalled_revivals": 1000})
    up.machine.run("sync")  # scripts and workspaces are not Onward's to flush
    seen: dict[str, list[Json]] = {run_id: [] for run_id in world.runs.values()}
    for _ in range(CUTS):
        look(up, seen, random.uniform(0.0, LONGEST_LIFE_S))
        assert "active" in {run["status"] for run in world.listed()}, f"nothing works any more: {world.listed()[0]}"
        boot = up.boot_id
        up.machine.cut_power()
        up.machine.boot()
        until(up.serves, 60)
        assert (lost(up, seen), up.boot_id == boot) == ([], False)
    world.let_go()
    world.until_ended(timeout_s=300)
    assert lost(up, seen) == []
    assert world.problems() == []


def many_turns(key: str) -> list[Turn]:
    # The effect is flushed, or nobody could tell whether it took place.
    slowly = "[ -e go ] || sleep 2; "
    return [turn("", bump(f"{key}.{number}", "sync ../effects", before=slowly)) for number in range(3 * CUTS + 5)]


def look(up: Service, seen: dict[str, list[Json]], seconds: float) -> None:
    """Note for some time what the daemon shows: all of it is durable."""
    end = time.monotonic() + seconds
    while True:
        for run_id, records in list(seen.items()):
            seen[run_id] = records + up.get(f"/v1/runs/{run_id}/records?after={len(records)}").body["records"]
        if time.monotonic() >= end:
            return


def lost(up: Service, seen: dict[str, list[Json]]) -> list[str]:
    """Return what was shown once and is not in the journal."""
    problems = []
    for run_id, records in seen.items():
        there = read_journal(up.runs / run_id).records[: len(records)]
        problems += [
            f"{run_id}: {before} became {after}"
            for before, after in zip(records, there + [{}] * len(records), strict=False)
            if any(before[name] != after.get(name) for name in ("seq", "type", "ts"))
        ]
    return problems
