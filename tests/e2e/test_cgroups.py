"""A daemon in a cgroup that was delegated to it: its calls have their own, and cannot act on it."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from onward.processes import launcher_cgroup as kernel
from tests.e2e.instances import Instance, shell
from tests.processes.delegated import delegated_cgroup

# A command that asks its own daemon: once to look, once to change something.
ASKS = """
import http.client, json, socket, sys
for method, path in (("GET", "/v1/daemon"), ("POST", "/v1/daemon/reload")):
    connection = http.client.HTTPConnection("localhost")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(sys.argv[1])
    connection.request(method, path, "{}", {"content-type": "application/json", "Onward-Request": "1"})
    print(method, connection.getresponse().status)
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Instance]:
    with delegated_cgroup() as group:
        instance = Instance(tmp_path / "home", cgroup=group)
        yield instance
        instance.end()


def test_a_command_may_look_but_not_change(home: Instance) -> None:
    home.start()
    (home.home / "asks.py").write_text(ASKS)
    asks = shell(f"{sys.executable} {home.home / 'asks.py'} {home.home / 'onward.sock'}")
    run_id = home.run(asks, {"text": "Done.", "calls": []})
    home.until_status(run_id, "completed")
    (done,) = home.records(run_id, "ToolCallDone")
    assert done["result"].splitlines() == ["GET 200", "POST 403"]
    assert home.post("/v1/daemon/reload", {}).status == 200


WAITS = "while ! [ -e go ]; do sleep 0.02; done; echo went"


def goes_on_adopted(home: Instance, run_id: str) -> None:
    """Let the command that waits come to its end, under a daemon that has not started it."""
    home.until(lambda: home.get("/v1/daemon").body["recovery"]["done"])
    (home.workspace / "go").touch()
    home.until_status(run_id, "completed")
    (done,) = home.records(run_id, "ToolCallDone")
    assert (done["result"], done["reason"]) == ("went", "adopted")


@pytest.mark.slow
def test_a_command_that_was_started_without_a_group_is_adopted(home: Instance) -> None:
    """As after an update from a version without cgroups, or when the unit was delegated none so far."""
    home.cgroup, group = None, home.cgroup
    home.start()
    run_id = home.run(shell(WAITS), {"text": "Done.", "calls": []})
    home.until_running(run_id)
    home.kill()
    home.cgroup = group
    home.start()
    goes_on_adopted(home, run_id)


def test_a_command_outlives_the_daemon_in_its_group_and_is_adopted(home: Instance) -> None:
    assert home.cgroup is not None
    group = home.cgroup
    home.start()
    isolation = home.get("/v1/daemon").body["isolation"]
    assert (isolation["kind"], isolation["cgroup"], isolation["problem"]) == ("cgroups", str(group), None)
    assert kernel.leaders(str(group)) == []
    assert home.pid in kernel.leaders(str(group / "daemon"))
    run_id = home.run(shell(WAITS), {"text": "Done.", "calls": []})
    home.until_running(run_id)
    call = group / "calls" / f"{run_id}.t1c1"
    home.until(lambda: kernel.leaders(str(call)) and kernel.members(str(call / "cmd")))
    home.kill()
    home.start()
    goes_on_adopted(home, run_id)
    home.until(lambda: not call.exists())


@pytest.mark.slow
def test_what_belongs_to_no_run_that_lives_is_ended_at_the_start(home: Instance) -> None:
    """The daemon dies, and the run's directory is removed by hand: nobody will ever wait for its command."""
    assert home.cgroup is not None
    home.start()
    run_id = home.run(shell("env -i setsid sleep 60 & wait"), {"text": "Done.", "calls": []})
    home.until_running(run_id)
    call = str(home.cgroup / "calls" / f"{run_id}.t1c1")
    home.until(lambda: len(kernel.members(f"{call}/cmd")) > 1)
    home.kill()
    (home.runs / run_id).rename(home.home / "taken away")
    home.start()
    home.until(lambda: kernel.remove(call))
