"""Under the shipped unit each call has a cgroup of its own, and what escapes from its launcher does not escape that."""

from pathlib import Path

import pytest

from tests.processes.test_crowd import BOMB
from tests.support import until
from tests.systemd.machine import Machine
from tests.systemd.service import Service

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TASKS = 150

# Outside of the launcher's tree and without its markers: only the cgroup knows where it comes from.
ESCAPES = "env -i PATH=$PATH setsid sh -c 'touch escaped; sleep 600' & cat go"


def test_what_a_lost_command_leaves_behind_is_ended_by_its_cgroup(up: Service) -> None:
    isolation = up.get("/v1/daemon").body["isolation"]
    assert (isolation["kind"], isolation["problem"]) == ("cgroups", None)
    up.machine.run("mkfifo", "-m", "666", "/var/lib/onward/workspaces/shared/go")
    run_id = up.run({"calls": [{"name": "shell", "arguments": {"command": ESCAPES}}]}, {"text": "Done.", "calls": []})
    until((up.workspace / "escaped").exists, 60)
    assert in_groups(up, run_id) == 1 + 4  # the launcher; sh, cat, and the two that escape
    # The launcher is killed, its command dies with it; the rest is ended by the next daemon, if not by this one.
    before = up.pid
    up.machine.run("sh", "-c", f"kill -9 {before} $(cat {group(up, run_id)}/cgroup.procs)")
    up.until_back(but=before)
    up.until_status(run_id, "completed", timeout_s=60)
    (done,) = up.records(run_id, "ToolCallDone")
    assert (done["outcome"], done["settled_by"]) == ("interrupted", "recovery")
    until(lambda: in_groups(up, run_id) == 0, 60)
    assert up.machine.run("pgrep", "-f", "sleep 600", check=False).stdout == ""


@pytest.fixture
def few_tasks(units: Path) -> None:
    (units / "onward.service.d/few.conf").write_text(f"[Service]\nTasksMax={TASKS}\n")


@pytest.mark.usefixtures("few_tasks")
def test_a_fork_bomb_is_ended_and_named_and_the_other_runs_go_on(machine: Machine, up: Service) -> None:
    bomb = {"calls": [{"name": "shell", "arguments": {"command": f"exec python3 -c '{BOMB}'"}}]}
    bad = str(up.ask_for(up.script(bomb, {}, name="bomb.json")).body["run_id"])
    until(lambda: int(machine.property("TasksCurrent")) >= TASKS, 60)
    model = up.script({"calls": [{"name": "shell", "arguments": {"command": "echo here"}}]}, {})
    good = [str(up.ask_for(model).body["run_id"]) for _ in range(5)]
    for run_id in good:
        up.until_status(run_id, "completed", timeout_s=60)
        assert [done["result"] for done in up.records(run_id, "ToolCallDone")] == ["here"]
    up.until_status(bad, "completed", timeout_s=60)
    (ended,) = up.records(bad, "ToolCallDone")
    assert ended["outcome"] == "interrupted"
    assert "no other could be started" in ended["result"]
    (named,) = [entry for entry in up.logged() if "had the most" in str(entry["MESSAGE"])]
    assert bad in str(named)


def group(up: Service, run_id: str) -> str:
    return f"{up.get('/v1/daemon').body['isolation']['cgroup']}/calls/{run_id}.t1c1"


def in_groups(up: Service, run_id: str) -> int:
    """Count the processes in the group of the run's call and below."""
    counted = up.machine.run(
        "sh", "-c", f"cat {group(up, run_id)}/cgroup.procs {group(up, run_id)}/cmd/cgroup.procs | wc -l"
    )
    return int(counted.stdout)
