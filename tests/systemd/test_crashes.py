"""The daemon dies under 20 runs in the middle of their batches, and all of them come to their ends by themselves."""

from pathlib import Path

import pytest

from onward.core.daemon_facts import CRASH_LOOP
from tests.support import until
from tests.systemd.service import Service
from tests.systemd.world import RUNS, World

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SURVIVED = {"ok by tool": 5 * RUNS, "not_started by recovery": RUNS}
"""The command in flight gives its real result; the second call of its batch was not handed over yet."""


def test_runs_finish_after_the_daemon_was_killed(up: Service) -> None:
    """The commands outlive it, so nothing is even interrupted."""
    world = World(up)
    world.start_all()
    world.until_in_first_batch()
    before = up.pid
    up.systemctl("kill", "--kill-whom=main", "-s", "KILL", "onward.service")
    up.until_back(but=before)
    world.let_go()
    world.until_ended()
    assert world.problems() == []
    assert world.outcomes() == SURVIVED
    assert up.machine.property("NRestarts") == "1"


def test_runs_finish_after_the_daemon_and_all_commands_were_killed(up: Service) -> None:
    """`systemctl kill` without --kill-whom reaches launchers too: what was in flight is said to be unknown."""
    world = World(up)
    world.start_all()
    world.until_in_first_batch()
    before = up.pid
    up.systemctl("kill", "-s", "KILL", "onward.service")
    up.until_back(but=before)
    world.let_go()
    world.until_ended()
    assert world.problems() == []
    assert world.outcomes() == {
        "interrupted by recovery": RUNS,
        "not_started by recovery": RUNS,
        "ok by tool": 4 * RUNS,
    }
    assert up.machine.property("NRestarts") == "1"


@pytest.fixture
def impatient(units: Path) -> None:
    """A short watchdog, and a signal that blocks the loop for ever: its handler runs where the loop does."""
    (units / "onward.service.d/test.conf").write_text(
        "[Service]\nWatchdogSec=3s\nEnvironment=PYTHONPATH=/etc/systemd/system/blocked\n"
    )
    (units / "blocked").mkdir()
    (units / "blocked/sitecustomize.py").write_text(
        "import signal, time\nsignal.signal(signal.SIGUSR2, lambda *_: time.sleep(1000))\n"
    )


@pytest.mark.usefixtures("impatient")
def test_a_daemon_whose_loop_is_blocked_is_ended_by_the_watchdog_with_its_stacks(up: Service) -> None:
    world = World(up)
    world.start_all()
    world.until_in_first_batch()
    before = up.pid
    up.systemctl("kill", "--kill-whom=main", "-s", "USR2", "onward.service")
    until(lambda: up.machine.property("NRestarts") == "1", 60)
    up.until_back(but=before)
    world.let_go()
    world.until_ended()
    assert world.problems() == []
    assert world.outcomes() == SURVIVED
    said = "\n".join(str(entry["MESSAGE"]) for entry in up.logged())
    assert "Watchdog timeout" in said
    assert "Fatal Python error: Aborted" in said
    assert "sitecustomize.py" in said.partition("Fatal Python error")[2]


def test_a_crash_loop_ends_in_a_daemon_that_holds_all_runs_and_not_in_a_dead_unit(up: Service) -> None:
    world = World(up)
    world.start_all()
    world.until_in_first_batch()
    for _ in range(CRASH_LOOP):
        # Else a run that is just being read would be blamed for it.
        until(lambda: up.get("/v1/daemon").body["recovery"]["done"], 60)
        before = up.pid
        up.systemctl("kill", "--kill-whom=main", "-s", "KILL", "onward.service")
        up.until_back(but=before)
    assert "crash-loop" in up.get("/v1/daemon").body["hold"]["reasons"]
    assert up.machine.property("ActiveState") == "active"
    up.machine.run("/opt/onward/current/bin/onward", "release", "--all")
    world.let_go()
    world.until_ended()
    assert world.problems() == []
    assert world.outcomes() == SURVIVED
