"""The same sweep, but with the machine: what was not flushed is gone, and with it every process.

The daemon dies at a fault point, its commands with it; then the directories are changed to what a power cut could have
left, and the next daemon is told that the machine has booted since.
"""

from itertools import cycle

import pytest

from tests.crash.harness import Home
from tests.crash.lives import KEY, die_of, live_to_the_end, recovers_to_the_same
from tests.crash.oracle import problems_with
from tests.crash.points import FIRST_LIFE, RECOVERIES, SECOND_LIFE, TORN, cases
from tests.crash.power import Loss, cut_power
from tests.crash.scenario import representative, write_script

EARLIER_BOOTS = ("an-earlier-boot", "another-boot")


@pytest.mark.slow
@pytest.mark.parametrize("point", cases(FIRST_LIFE))
@pytest.mark.parametrize("loss", Loss)
def test_power_cut_at(home: Home, loss: Loss, point: str) -> None:
    check_power_cuts(home, loss, point)


@pytest.mark.slow
@pytest.mark.parametrize(("loss", "point"), list(zip(cycle(Loss), cases(SECOND_LIFE), strict=False)))
@pytest.mark.parametrize("first", RECOVERIES.values(), ids=RECOVERIES)
def test_power_cut_again_while_it_recovers(home: Home, loss: Loss, first: str, point: str) -> None:
    check_power_cuts(home, loss, first, point)


@pytest.mark.slow
@pytest.mark.parametrize("point", cases(TORN))
def test_power_cut_again_while_a_torn_tail_is_set_aside(home: Home, point: str) -> None:
    check_power_cuts(home, Loss.ZEROS, "journal.write.after#3", point)
    assert list(home.run_dirs()[0].glob("journal.torn-*"))


def check_power_cuts(home: Home, loss: Loss, *points: str) -> None:
    """Cut the power at each point, then let a daemon carry on to the end, and compare."""
    home.noted = True
    script = write_script(home.path, representative())
    for point, boot_id in zip(points, EARLIER_BOOTS, strict=False):
        die_of(home, script, f"{point}=kill", boot_id=boot_id)
        home.end_processes()
        cut_power(home.path, home.notes, loss)
    live_to_the_end(home, script)

    assert problems_with(home, {KEY: script}) == []
    assert recovers_to_the_same(home)
