"""Daemons that die of a fault, one after the other, until one carries the run on to its end."""

from pathlib import Path
from typing import Any

from tests.crash.harness import KILLED, Home
from tests.crash.points import is_timed

KEY = "swept"


def start(home: Home, script: Path, fault: str = "", **members: Any) -> bool:
    """Start a daemon and have it start the run, or say that it has it; False when it dies."""
    home.start(fault, **members)
    return home.when_ready() and home.start_run(script, KEY) is not None


def live(home: Home, script: Path, fault: str = "", **members: Any) -> bool:
    """Start a daemon and the run, and wait for the end; False when it dies."""
    return start(home, script, fault, **members) and home.rest()


def die_of(home: Home, script: Path, fault: str, **members: Any) -> None:
    """Let a daemon live until it is killed by `fault`; one that meets it too seldom is killed at rest."""
    if live(home, script, fault, **members):
        assert is_timed(fault), f"{fault} was not met"
        home.daemon.kill()
    assert home.daemon.wait() == KILLED


def live_to_the_end(home: Home, script: Path) -> None:
    assert live(home, script), f"the last daemon died with {home.daemon.wait()}"


def recovers_to_the_same(home: Home) -> bool:
    """Whether another daemon leaves everything as it is."""
    shown = home.listed()
    assert home.daemon.stop() == 0
    before = state_of(home)
    home.start()
    assert home.when_ready()
    assert home.listed() == shown
    assert home.daemon.stop() == 0
    return state_of(home) == before


def state_of(home: Home) -> dict[str, bytes]:
    """Every file of every run."""
    files = [path for run in home.run_dirs() for path in sorted(run.rglob("*")) if path.is_file()]
    return {str(path): path.read_bytes() for path in files}
