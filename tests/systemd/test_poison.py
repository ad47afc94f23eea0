"""A run that kills the daemon whenever it works: it is set aside, the others end, and the unit stays up."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.scenario import turn
from tests.support import until
from tests.systemd.service import Service
from tests.systemd.world import RUNS, World

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

# The daemon as it is, with a model that is its death.
DAEMON = """
import os, signal, sys
from onward.cli.main import main
from onward.native.models.scripted import ScriptedModel

infer = ScriptedModel.infer

async def deadly(self, request, on_delta=None):
    if "poison" in self.name:
        os.kill(os.getpid(), signal.SIGKILL)
    return await infer(self, request, on_delta)

ScriptedModel.infer = deadly
sys.argv[1:] = ["daemon"]
main()
"""


@pytest.fixture
def deadly(units: Path) -> None:
    (units / "deadly").mkdir()
    (units / "deadly/daemon.py").write_text(DAEMON)
    (units / "onward.service.d/test.conf").write_text(
        "[Service]\nExecStart=\nExecStart=/opt/onward/current/bin/python /etc/systemd/system/deadly/daemon.py\n"
    )


@pytest.mark.usefixtures("deadly")
def test_a_run_that_kills_the_daemon_takes_neither_the_unit_nor_other_runs_along(up: Service) -> None:
    world = World(up)
    world.start_all(RUNS - 1)
    world.until_in_first_batch()
    before = up.pid
    model = up.script(turn("never"), name="poison.json")
    key = {"key": "poison"}
    try:
        poison = up.ask_for(model, **key).body["run_id"]
    except OSError:  # it died before it could answer; asked again it is the same run
        up.until_back(but=before)
        poison = up.ask_for(model, **key).body["run_id"]

    def set_aside() -> bool:
        return up.serves() and up.show(poison).get("status") == "quarantined"

    until(lambda: _asked(set_aside), 120)
    world.let_go()
    world.until_ended()
    assert world.problems(besides=[poison]) == []
    assert up.show(poison)["status"] == "quarantined"
    assert up.machine.property("ActiveState") == "active"
    assert 1 <= int(up.machine.property("NRestarts")) <= 5


def _asked(condition: Callable[[], bool]) -> bool:
    try:
        return condition()
    except OSError:
        return False
