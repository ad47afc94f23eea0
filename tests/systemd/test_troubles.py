"""What goes wrong around the service: memory, disk, configuration, a stop that a socket outlives."""

import re
from pathlib import Path

import pytest

from tests.crash.scenario import turn
from tests.e2e.instances import shell
from tests.support import until
from tests.systemd.machine import Machine
from tests.systemd.service import HOME, ROOT, Service
from tests.systemd.world import RUNS, World

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def little_memory(units: Path) -> None:
    (units / "onward.service.d/test.conf").write_text("[Service]\nMemoryMax=700M\n")


@pytest.mark.usefixtures("little_memory")
def test_a_tool_that_takes_all_memory_dies_and_not_the_daemon_or_another_tool(up: Service) -> None:
    world = World(up)
    world.start_all(RUNS - 1)
    world.until_in_first_batch()
    before = up.pid
    hog = up.run(shell("head -c 5G /dev/zero | tail; echo after"), {"text": "seen"})
    up.until_status(hog, "completed", timeout_s=100)
    world.let_go()
    world.until_ended()
    assert world.problems(besides=[hog]) == []
    assert set(world.outcomes()) == {"ok by tool"}
    assert "Killed" in str(up.records(hog, "ToolCallDone")[0]["result"]) or "oom" in up.machine.run("dmesg").stdout
    assert (up.pid, up.machine.property("NRestarts")) == (before, "0")


HARM = {
    "away": ("mv runs away; touch runs; chown onward: runs", "rm runs; mv away runs"),
    "full": (
        "mount -t tmpfs -o size=64k,mode=700,uid=$(id -u onward) full runs; head -c 64k /dev/zero >runs/full",
        "umount runs",
    ),
}


@pytest.mark.parametrize("harm", HARM)
def test_a_disk_that_is_away_or_full_at_the_start_is_waited_for(up: Service, harm: str) -> None:
    world = World(up)
    world.start_all(2)
    world.until_in_first_batch()
    break_it, mend_it = HARM[harm]
    up.systemctl("stop", "onward.service")
    up.machine.run("sh", "-ec", f"cd {HOME}; {break_it}")
    up.systemctl("start", "onward.service")
    assert up.get("/healthz").status == 200
    refused = up.get("/v1/runs")
    assert (refused.status, refused.body["code"]) == (503, "unreachable")
    assert "/var/lib/onward/runs" in up.machine.property("StatusText")
    before = up.pid
    up.machine.run("sh", "-ec", f"cd {HOME}; {mend_it}")
    until(up.serves, 60)
    world.let_go()
    world.until_ended()
    assert world.problems() == []
    assert (up.pid, up.machine.property("NRestarts")) == (before, "0")


def test_a_broken_configuration_at_the_start_is_said_and_the_last_good_one_used(up: Service) -> None:
    settings = up.machine.root / "etc/onward/onward.toml"
    settings.write_text("[daemon]\nmax_active_runs = 7\n")
    up.systemctl("reload", "onward.service")
    until(lambda: up.get("/v1/daemon").body["limits"]["max_active_runs"] == 7)
    settings.write_text("[daemon]\nmax_active_runs = lots\n")
    up.systemctl("restart", "onward.service")
    known = up.get("/v1/daemon").body
    assert known["limits"]["max_active_runs"] == 7
    until(lambda: not up.get("/v1/daemon").body["config"]["ok"])
    until(lambda: "configuration is wrong" in up.machine.property("StatusText"), 30)

    up.systemctl("stop", "onward.service")
    (up.home / "last-good-settings.json").unlink()
    up.systemctl("start", "onward.service", check=False)
    until(lambda: up.machine.property("ActiveState") == "failed", 30)
    assert (up.machine.property("ExecMainStatus"), up.machine.property("NRestarts")) == ("78", "0")


@pytest.fixture
def by_socket(machine: Machine) -> Machine:
    machine.enable = ("onward.socket",)
    return machine


@pytest.mark.usefixtures("by_socket")
def test_with_the_socket_unit_the_first_question_starts_the_daemon_and_a_stop_leaves_the_socket(
    machine: Machine,
) -> None:
    machine.boot()
    up = Service(machine)
    assert machine.property("ActiveState") == "inactive"
    for _ in range(2):
        assert up.get("/readyz").status in (200, 503)
        until(up.serves, 60)
        assert machine.property("ActiveState") == "active"
        up.systemctl("stop", "onward.service")
        assert up.socket.is_socket()


def test_the_socket_unit_can_be_enabled_beside_a_running_service_under_a_command_in_flight(up: Service) -> None:
    """By the words of the manual."""
    words = re.search(r"`(systemctl enable onward.socket; .*?)`", (ROOT / "systemd/README.md").read_text(), re.DOTALL)
    assert words is not None
    world = World(up)
    world.start_all(1)
    world.until_in_first_batch()
    before = up.pid
    up.machine.run("sh", "-ec", words[1])
    up.until_back(but=before)
    assert up.machine.property("ActiveState", "onward.socket") == "active"
    world.let_go()
    world.until_ended()
    assert world.problems() == []
    assert [outcome for outcome in world.outcomes() if outcome.startswith("interrupted")] == []
    up.systemctl("stop", "onward.service")
    assert up.get("/healthz").status == 200


def test_log_entries_can_be_searched_by_run_and_severity(up: Service) -> None:
    run_id = up.run(shell("true"), {"text": "done"})
    up.until_status(run_id, "completed")
    before = up.pid
    up.systemctl("kill", "--kill-whom=main", "-s", "KILL", "onward.service")
    up.until_back(but=before)
    waits = up.run(shell("until [ -e go ]; do sleep 0.5; done"), {"text": "done"})
    up.until_running(waits)
    up.systemctl("kill", "-s", "KILL", "onward.service")
    until(lambda: up.logged(f"RUN_ID={waits}"), 60)
    assert all(entry["PRIORITY"] == "6" for entry in up.logged(f"RUN_ID={waits}"))
    assert {entry["PRIORITY"] for entry in up.logged("_PID=" + str(before))} <= {"4", "6"}


@pytest.mark.parametrize("unit", ["onward.service", "onward.socket"])
def test_the_shipped_units_are_as_systemd_wants_them(up: Service, unit: str) -> None:
    told = up.machine.run("systemd-analyze", "verify", "--man=no", f"/etc/systemd/system/{unit}")
    assert told.stdout + told.stderr == ""


def test_children_get_nothing_that_is_the_daemons(up: Service) -> None:
    """Neither the service manager's socket, nor keys; and nobody reads the daemon's memory or environment."""
    look = "env; cat /proc/$(systemctl show -p MainPID --value onward)/environ; ls /run/credentials/onward.service"
    run_id = up.run(shell(look), turn("seen"))
    up.until_status(run_id, "completed")
    told = str(up.records(run_id, "ToolCallDone")[0]["result"])
    assert "ONWARD_RUN_ID" in told
    for name in ("NOTIFY_SOCKET", "WATCHDOG", "LISTEN_", "CREDENTIALS_DIRECTORY", "INVOCATION_ID", "STATE_DIRECTORY"):
        assert name not in told


def test_root_may_ask_the_doctor_about_the_service(up: Service) -> None:
    told = up.machine.run("/opt/onward/current/bin/onward", "doctor", check=False)
    assert [line for line in told.stdout.splitlines() if line.startswith("fail")] == []
    assert "the runs are in /var/lib/onward/runs" in told.stdout


def test_a_key_in_the_credential_store_reaches_the_provider_and_nothing_else(up: Service) -> None:
    """Without it a start is refused; with it the run asks (nobody answers here), and no file of ours has the key."""
    assert up.ask_for("openai/gpt-5").status == 422
    store = "install -d -m 700 /etc/credstore; umask 077; printf sk-from-the-store-4711 > /etc/credstore/openai-api-key"
    up.machine.run("sh", "-ec", store)
    up.systemctl("restart", "onward.service")
    asked = up.ask_for("openai/gpt-5")
    assert asked.status == 201
    run_id = asked.body["run_id"]
    up.until(lambda: "InferenceFailed" in up.types(run_id))
    assert up.records(run_id, "InferenceFailed")[0]["failure"] == "network"
    found = up.machine.run("grep", "-rl", "sk-from-the-store-4711", str(HOME), "/var/log", check=False)
    assert found.stdout == ""
