"""A human's revive that dies anywhere: asked again it succeeds, and one revival stands in the journal."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from onward.recovery import inspect, revive
from tests.core import journals as j
from tests.recovery.runs import put, records
from tests.store.worlds import Passed, installed

GAP = (
    j.Journal()
    .add(j.started(), j.claimed(), j.inferring(), j.turn(1, j.use("a"), seen=3), j.batch(1, "t1c1"))
    .skip()
    .add(j.handed_over("t1c1"))
    .put(b'{"crc":"0000')
)
REVIVE = "import sys; from onward.testing import faults; faults.install_from_environment(); "
REVIVE += "from onward.recovery import revive; sys.exit(not revive(sys.argv[1]).ok)"


def damaged(top: Path) -> Path:
    """A run with everything that a revive may have to write: a torn end, evidence to set aside, a quarantine."""
    run = put(top, GAP)
    (run / "calls" / "t7c1").mkdir(parents=True)
    suspended = {"type": "RunSuspended", "run_id": run.name, "reason": "the daemon died"}
    (top / "daemon.jsonl").write_bytes(j.Journal().add(suspended).bytes)
    return run


@pytest.mark.slow
def test_a_revive_that_dies_at_any_point_can_be_repeated(tmp_path: Path) -> None:
    plan = Passed()
    with installed(plan):
        assert revive(damaged(tmp_path / "traced")).ok
    points = dict.fromkeys(plan.points)
    assert {"journal.write.before", "journal.flush.after", "call.aside.after", "facts.flush.after"} <= points.keys()
    for number, point in enumerate(points):
        run = damaged(tmp_path / str(number))
        env = {**os.environ, "ONWARD_FAULT": f"{point}=kill"}
        died = subprocess.run([sys.executable, "-c", REVIVE, str(run)], env=env, timeout=60)
        assert died.returncode == -9, point
        again = revive(run)
        assert again.ok or again.reason == "waiting", (point, again)
        assert [record["type"] for record in records(run)].count("RunRevived") == 1, point
        found = inspect(run)
        assert (found.revivable, found.status) == (True, "active"), (point, found)
        assert [path.name for path in run.glob("journal.torn-*")] != []
        assert [path.name.startswith("t7c1.aside") for path in (run / "calls").iterdir()] == [True]
