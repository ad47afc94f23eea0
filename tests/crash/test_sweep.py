"""A daemon killed at every point where it makes something durable: nothing is lost, nothing happens twice.

Each case kills a real daemon by SIGKILL at one hit of one fault point, starts others until the run has ended, and
compares the journal with the world. The double crash kills the second daemon while it recovers.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.harness import KILLED, Home
from tests.crash.oracle import problems_with
from tests.crash.points import FIRST_LIFE, RECOVERIES, SECOND_LIFE, cases, is_timed
from tests.crash.scenario import representative, write_script

KEY = "swept"

HANDFUL = {
    "K2: answered, not journaled": "run.answered#2",
    "K3: journaled, not started": "journal.flush.after#4",
    "K4: handed over, no effect yet": "call.make.after#2",
    "K5: effect done, result not journaled": "run.call_ended#3",
    "K6: result half written": "blob.rename.unsynced#1",
}


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    tmp_path.chmod(0o700)
    home = Home(tmp_path)
    yield home
    home.close()


def test_the_points_of_a_clean_run_are_those_that_are_swept(home: Home) -> None:
    """A fault point that is new, or hit less often than listed, has to be listed in points.py."""
    script = write_script(home.path, representative())
    live(home, script, trace=home.path / "trace")
    hits = [line.split()[1].partition("#")[0] for line in (home.path / "trace").read_text().splitlines()]

    assert problems_with(home, {KEY: script}) == []
    assert {point: FIRST_LIFE.get(point) for point in hits} == FIRST_LIFE
    assert {point: n for point, n in FIRST_LIFE.items() if hits.count(point) < n and not is_timed(point)} == {}


@pytest.mark.parametrize("point", HANDFUL.values(), ids=HANDFUL)
def test_killed_at_a_well_known_point(home: Home, point: str) -> None:
    check_lives(home, [f"{point}=kill"])


@pytest.mark.slow
@pytest.mark.parametrize("point", cases(FIRST_LIFE))
def test_killed_at(home: Home, point: str) -> None:
    check_lives(home, [f"{point}=kill"])


@pytest.mark.slow
@pytest.mark.parametrize("point", cases(SECOND_LIFE))
@pytest.mark.parametrize("first", RECOVERIES.values(), ids=RECOVERIES)
def test_killed_again_while_it_recovers(home: Home, first: str, point: str) -> None:
    check_lives(home, [f"{first}=kill", f"{point}=kill"])


def check_lives(home: Home, faults: list[str]) -> None:
    """Let a daemon die of each fault, then one that meets none carry on to the end, and compare."""
    script = write_script(home.path, representative())
    for fault in faults:
        if live(home, script, fault):
            assert is_timed(fault), f"{fault} was not met"
            home.daemon.kill()
        assert home.daemon.wait() == KILLED
    assert live(home, script), f"the last daemon died with {home.daemon.wait()}"

    assert problems_with(home, {KEY: script}) == []
    assert recovers_to_the_same(home)


def live(home: Home, script: Path, fault: str = "", trace: Path | None = None) -> bool:
    """Start a daemon, have it start the run (or say that it has it), and wait for the end; False when it dies."""
    home.start(fault, trace=trace)
    return home.when_ready() and home.start_run(script, KEY) is not None and home.rest()


def recovers_to_the_same(home: Home) -> bool:
    """Whether another daemon leaves everything as it is."""
    before, shown = state_of(home), home.listed()
    assert home.daemon.stop() == 0
    home.start()
    assert home.when_ready()
    assert home.listed() == shown
    assert home.daemon.stop() == 0
    return state_of(home) == before


def state_of(home: Home) -> dict[str, bytes]:
    """Every file of every run."""
    return {
        str(path): path.read_bytes() for run in home.run_dirs() for path in sorted(run.rglob("*")) if path.is_file()
    }
