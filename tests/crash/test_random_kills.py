"""Several runs, and two hundred kills at any moment: in the end each run did what it would have done without them."""

import os
import random
from pathlib import Path

import pytest

from onward.store.lock import holder_of
from tests.crash.harness import KILLED, Home
from tests.crash.lives import recovers_to_the_same
from tests.crash.oracle import problems_with
from tests.crash.scenario import bump, call, turn, write_script
from tests.support import until

SAMPLED = bool(int(os.environ.get("ONWARD_SWEEP_SAMPLE", "0")))
KILLS = 12 if SAMPLED else 200
RUNS = ("one", "two", "three")
SHORTEST_S, LONGEST_S = 0.02, 0.4
END_S = 600.0


def long_script(home: Path, name: str) -> Path:
    """More steps than there are kills: writes with their own effects, edits, reads side by side, slow commands."""
    reads = [call("read_file", path=f"{name}.txt"), call("list_files", path=".")]
    write = call("write_file", path=f"{name}.txt", content="step {i}")
    turns = [
        turn(
            "step {i}",
            write,
            bump(f"{name}-a{{i}}"),
            *reads,
            bump(f"{name}-b{{i}}", before="sleep 0.1; "),
            repeat=KILLS,
        ),
        turn("Done.", call("finish", result=name)),
    ]
    return write_script(home, turns, f"{name}.json")


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_killed_at_random_moments(home: Home) -> None:
    chosen = random.Random(os.environ.get("ONWARD_SWEEP_SEED", "0"))
    scripts = {name: long_script(home.path, name) for name in RUNS}
    home.start()
    assert home.when_ready()
    assert None not in [home.start_run(script, name) for name, script in scripts.items()]
    for number in range(1, KILLS + 1):
        until(lambda: (holder := holder_of(str(home.runs / ".lock"))) and holder.pid == home.daemon.pid)
        assert not home.daemon.ends_within(chosen.uniform(SHORTEST_S, LONGEST_S))
        home.daemon.kill()
        assert home.daemon.wait() == KILLED
        if number % 10 == 0:  # else the next daemons would wait to be released from a crash loop
            (home.runs / "daemon.jsonl").unlink(missing_ok=True)
        home.start()
    assert home.when_ready()
    assert home.rest(len(RUNS), END_S)

    assert problems_with(home, scripts) == []
    assert recovers_to_the_same(home)
