"""Stop, restart and shutdown: only a restart leaves commands to the next daemon, and none is ended without a record."""

from collections.abc import Callable

import pytest

from tests.crash.scenario import Turn, bump, turn
from tests.support import until
from tests.systemd.service import Service
from tests.systemd.world import RUNS, World

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

MAKES_FILES = """
touch begun
until [ -e go ]; do file=$(mktemp) && echo x > "$file" || touch failed; sleep 0.1; done
ls "$file" > last
"""
STUBBORN = "trap '' TERM; touch stubborn; while :; do sleep 0.3; done"


def commands(up: Service) -> list[str]:
    """Return what still runs of the calls."""
    found = up.machine.run("pgrep", "-u", "onward", "-a", check=False).stdout.splitlines()
    return [line for line in found if " daemon" not in line]


def ended(*calls: Turn) -> list[Turn]:
    return [turn("", *calls)]


def test_a_restart_leaves_commands_running_and_their_tmp_intact(up: Service) -> None:
    world = World(up)
    files = world.start(ended(bump("files", before=MAKES_FILES)), "files")
    world.start_all(RUNS - 1)
    world.until_in_first_batch()
    until((up.workspace / "begun").exists)
    before = up.pid
    up.systemctl("restart", "onward.service")
    assert up.pid not in (0, before)
    assert up.serves()
    world.let_go()
    world.until_ended()
    assert world.problems() == []
    assert {key for key in world.outcomes() if "interrupted" in key} == set()
    assert (up.workspace / "last").read_text().startswith("/tmp/tmp.")
    assert not (up.workspace / "failed").exists()
    assert up.show(files)["revivals"]["attempts"] == 0


@pytest.mark.parametrize("way", ["stop", "down", "poweroff"])
def test_a_stop_ends_commands_and_records_how(up: Service, way: str) -> None:
    """Those that obey at once, a stubborn one after its grace; and at the next start all runs go on by themselves."""
    world = World(up)
    stubborn = world.start(ended(bump("stubborn", before=STUBBORN + "; ")), "stubborn")
    world.start_all(RUNS - 1)
    world.until_in_first_batch()
    until((up.workspace / "stubborn").exists)
    if way != "poweroff":
        STOPS[way](up)
        assert commands(up) == []
        assert up.machine.property("Result") == "success"
        check_recorded(up, world)
        up.systemctl("start", "onward.service")
    else:
        boot = up.boot_id
        up.machine.poweroff()
        up.machine.boot()
        until(up.serves, 60)
        assert up.boot_id != boot
        check_recorded(up, world)
    world.until_ended()
    assert world.problems() == []
    assert up.show(stubborn)["revivals"]["charged"] == 0


def check_recorded(up: Service, world: World) -> None:
    for run_id in world.runs.values():
        done = up.records(run_id, "ToolCallDone")[0]
        assert (done["call_id"], done["outcome"], done["settled_by"]) == ("t1c1", "interrupted", "tool")


@pytest.mark.parametrize("way", ["kill", "down --leave-running"])
def test_other_ends_of_the_daemon_leave_commands_running(up: Service, way: str) -> None:
    world = World(up)
    world.start_all(1)
    world.until_in_first_batch()
    STOPS[way](up)
    until(lambda: up.machine.property("ActiveState") == "inactive", 60)
    assert commands(up) != []
    up.systemctl("start", "onward.service")
    world.let_go()
    world.until_ended()
    assert world.problems() == []
    assert "interrupted by tool" not in world.outcomes()


def onward(up: Service, *words: str) -> object:
    return up.machine.run("/opt/onward/current/bin/onward", *words)


STOPS: dict[str, Callable[[Service], object]] = {
    "stop": lambda up: up.systemctl("stop", "onward.service"),
    "down": lambda up: onward(up, "down"),
    "down --leave-running": lambda up: onward(up, "down", "--leave-running"),
    "kill": lambda up: up.machine.run("kill", "-TERM", str(up.pid)),
}
