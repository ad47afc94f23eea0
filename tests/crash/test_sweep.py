"""A daemon killed at every point where it makes something durable: nothing is lost, nothing happens twice.

Each case kills a real daemon by SIGKILL at one hit of one fault point, starts others until the run has ended, and
compares the journal with the world. The double crash kills the second daemon while it recovers.
"""

import pytest

from tests.crash.harness import Home
from tests.crash.lives import KEY, die_of, live, live_to_the_end, recovers_to_the_same
from tests.crash.oracle import problems_with
from tests.crash.points import FIRST_LIFE, RECOVERIES, SECOND_LIFE, cases, is_timed
from tests.crash.scenario import representative, write_script

HANDFUL = {
    "K2: answered, not journaled": "run.answered#2",
    "K3: journaled, not started": "journal.flush.after#4",
    "K4: handed over, no effect yet": "call.make.after#2",
    "K5: effect done, result not journaled": "run.call_ended#3",
    "K6: result half written": "blob.rename.unsynced#1",
}


def test_the_points_of_a_clean_run_are_those_that_are_swept(home: Home) -> None:
    """A fault point that is new, or hit less often than listed, has to be listed in points.py."""
    script = write_script(home.path, representative())
    assert live(home, script, trace=home.path / "trace")
    hits = [line.split()[1].partition("#")[0] for line in (home.path / "trace").read_text().splitlines()]

    assert problems_with(home, {KEY: script}) == []
    assert {point: FIRST_LIFE.get(point) for point in hits} == FIRST_LIFE
    assert {point: n for point, n in FIRST_LIFE.items() if hits.count(point) < n and not is_timed(point)} == {}


@pytest.mark.parametrize("point", HANDFUL.values(), ids=HANDFUL)
def test_killed_at_a_well_known_point(home: Home, point: str) -> None:
    check_lives(home, point)


@pytest.mark.slow
@pytest.mark.parametrize("point", cases(FIRST_LIFE))
def test_killed_at(home: Home, point: str) -> None:
    check_lives(home, point)


@pytest.mark.slow
@pytest.mark.parametrize("point", cases(SECOND_LIFE))
@pytest.mark.parametrize("first", RECOVERIES.values(), ids=RECOVERIES)
def test_killed_again_while_it_recovers(home: Home, first: str, point: str) -> None:
    check_lives(home, first, point)


def check_lives(home: Home, *points: str) -> None:
    """Let a daemon die at each point, then one that meets none carry on to the end, and compare."""
    script = write_script(home.path, representative())
    for point in points:
        die_of(home, script, f"{point}=kill")
    live_to_the_end(home, script)

    assert problems_with(home, {KEY: script}) == []
    assert recovers_to_the_same(home)
