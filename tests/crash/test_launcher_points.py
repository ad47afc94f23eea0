"""Launchers that die at every step of theirs, or are stopped there while daemons come and go."""

import os
import signal

import pytest

from tests.crash.harness import Home
from tests.crash.journals import read_journal
from tests.crash.lives import KEY, die_of, live_to_the_end, recovers_to_the_same, start
from tests.crash.oracle import problems_with
from tests.crash.scenario import bump, call, effects, turn, write_script
from tests.support import state_of, until

LAUNCHER = (
    "launcher.before_identity",
    "launcher.after_identity",
    "launcher.before_exec",
    "launcher.before_exit",
    "launcher.exit_written",
    "launcher.after_exit",
)
ADOPTABLE = LAUNCHER[1:5]
SCRIPT = [turn("", bump("first")), turn("", bump("second"), bump("third")), turn("", call("finish", result="done"))]


@pytest.mark.slow
@pytest.mark.parametrize("point", LAUNCHER)
def test_every_launcher_dies_at(home: Home, point: str) -> None:
    script = write_script(home.path, SCRIPT)
    assert start(home, script, launcher_fault=f"{point}=kill")
    assert home.rest()

    assert problems_with(home, {KEY: script}) == []
    assert recovers_to_the_same(home)


@pytest.mark.slow
@pytest.mark.parametrize("daemon_point", ["run.call_ended#1", "run.call_ended#2", "run.answered#3"])
@pytest.mark.parametrize("point", LAUNCHER)
def test_every_launcher_dies_and_then_the_daemon(home: Home, point: str, daemon_point: str) -> None:
    script = write_script(home.path, SCRIPT)
    die_of(home, script, f"{daemon_point}=kill", launcher_fault=f"{point}=kill")
    live_to_the_end(home, script)

    assert problems_with(home, {KEY: script}) == []
    assert recovers_to_the_same(home)


def test_a_launcher_that_recovery_overtook_never_starts_its_command(home: Home) -> None:
    """W1: stopped between its start and its identity, it goes on when its call was already declared not started."""
    script = write_script(home.path, SCRIPT)
    launcher = stopped_launcher(home, script_fault="launcher.before_identity")
    home.daemon.kill()
    home.daemon.wait()
    live_to_the_end(home, home.path / "script.json")
    os.kill(launcher, signal.SIGCONT)
    until(lambda: launcher not in home.processes())

    assert effects(home.path) == ["second", "third"]
    assert outcome(home, "t1c1") == "not_started"
    assert problems_with(home, {KEY: script}) == []
    assert recovers_to_the_same(home)


@pytest.mark.slow
def test_a_launcher_that_goes_on_right_after_it_was_overtaken_never_starts_its_command(home: Home) -> None:
    script = write_script(home.path, SCRIPT)
    launcher = stopped_launcher(home, script_fault="launcher.before_identity")
    home.daemon.kill()
    home.daemon.wait()
    die_of(home, script, "journal.write.before#2=kill")  # fenced, but nothing is written of it
    os.kill(launcher, signal.SIGCONT)
    until(lambda: launcher not in home.processes())
    live_to_the_end(home, script)

    assert effects(home.path) == ["second", "third"]
    assert problems_with(home, {KEY: script}) == []


@pytest.mark.slow
@pytest.mark.parametrize("point", ADOPTABLE)
def test_a_living_launcher_is_adopted_by_every_later_daemon(home: Home, point: str) -> None:
    """Two daemons later its command is carried through as if nothing had been, and nobody was interrupted."""
    script = write_script(home.path, SCRIPT)
    launcher = stopped_launcher(home, script_fault=point)
    for _ in range(2):
        home.daemon.kill()
        home.daemon.wait()
        assert start(home, script)
        until(home.has_recovered)
    os.kill(launcher, signal.SIGCONT)
    assert home.rest()

    assert effects(home.path) == ["first", "second", "third"]
    assert outcome(home, "t1c1") == "ok"
    assert read_journal(home.run_dirs()[0]).counts()["RunRevived"] == 0
    assert problems_with(home, {KEY: script}) == []
    assert recovers_to_the_same(home)


def stopped_launcher(home: Home, script_fault: str) -> int:
    """Start the run in a daemon whose launchers stop at a point; returns the pid of the first one, stopped."""
    assert start(home, home.path / "script.json", launcher_fault=f"{script_fault}=stop")

    def stopped() -> list[int]:
        return [pid for pid in home.processes() if state_of(pid) == "T"]

    (launcher,) = until(stopped)
    return launcher


def outcome(home: Home, call_id: str) -> str:
    (settled,) = read_journal(home.run_dirs()[0]).settlements()[call_id]
    return str(settled["outcome"])
