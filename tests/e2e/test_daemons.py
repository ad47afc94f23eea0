"""One daemon holds a runs directory: a second one refuses, a dead one is no obstacle, and a lost lock ends it."""

import json
import os
import socket
from collections.abc import Callable

import pytest

from tests.e2e.instances import Instance, shell


def test_a_second_daemon_refuses_and_names_the_one_that_holds_the_runs(
    instance: Instance, make: Callable[..., Instance]
) -> None:
    instance.start()
    other = make("other")
    second = other.launch(ONWARD_DAEMON__RUNS_DIR=str(instance.runs), ONWARD_DAEMON__LOCK_WAIT_S="0.1")
    assert second.wait(30) == 8
    said = other.log.read_text()
    assert f"process {instance.pid} on {socket.gethostname()}" in said
    assert "Traceback" not in said
    assert instance.get("/healthz").status == 200


def test_a_daemon_that_takes_over_waits_for_the_one_before_it(instance: Instance) -> None:
    before = instance.start().daemon
    instance.daemon = instance.launch(ONWARD_DAEMON__LOCK_WAIT_S="20")
    assert before is not None
    before.terminate()
    assert before.wait(30) == 0
    instance.until(lambda: instance._answers() and instance.get("/v1/daemon").body["pid"] == instance.pid)


def test_what_a_killed_daemon_left_is_no_obstacle(instance: Instance) -> None:
    """A socket file that nobody listens on, and a lock file that names a process that is gone, or another's."""
    instance.start().kill()
    assert (instance.home / "onward.sock").exists()
    lock = json.loads((instance.runs / ".lock").read_bytes())
    (instance.runs / ".lock").write_text(json.dumps({**lock, "pid": os.getpid()}))
    instance.start()
    assert instance.get("/v1/daemon").body["pid"] == instance.pid


@pytest.mark.parametrize("harm", ["removed", "replaced"])
def test_a_daemon_whose_lock_file_is_gone_stops_by_itself(make: Callable[..., Instance], harm: str) -> None:
    """Somebody else may hold the runs now: not another byte is written."""
    instance = make(lock_check_s=0.1)
    run_id = instance.start().run(shell("sleep 60"))
    instance.until_running(run_id)
    before = (instance.runs / run_id / "journal.jsonl").read_bytes()
    (instance.runs / ".lock").unlink()
    if harm == "replaced":
        (instance.runs / ".lock").touch()
    assert instance.daemon is not None
    assert instance.daemon.wait(30) == 74
    assert (instance.runs / run_id / "journal.jsonl").read_bytes() == before


def test_an_idempotency_key_survives_the_daemon(instance: Instance) -> None:
    instance.start()
    model = instance.script({"text": "done"})
    first = instance.ask_for(model, key="one")
    run_id = first.body["run_id"]
    instance.until_status(run_id, "completed")
    instance.kill()
    (instance.runs / run_id / "meta.json").unlink(missing_ok=True)
    instance.start()
    again = instance.ask_for(model, key="one")
    assert (first.status, again.status, again.body["run_id"]) == (201, 200, run_id)
    assert instance.ask_for(model, key="two").body["run_id"] != run_id
    for other in ({"task": "something else"}, {"limits": {"turns": 3}}, {"agent": "rehearsal"}):
        refused = instance.ask_for(model, key="one", **other)
        assert (refused.status, refused.body["code"]) == (409, "conflict"), other
    assert len(instance.listed()) == 2


def test_a_key_tells_tasks_apart_that_begin_alike(instance: Instance) -> None:
    """The index knows the first words of a task only."""
    instance.start()
    model = instance.script({"text": "done"})
    task = "x" * 5000
    first = instance.ask_for(model, key="one", task=task)
    assert instance.ask_for(model, key="one", task=task).body["run_id"] == first.body["run_id"]
    assert instance.ask_for(model, key="one", task=task + "y").status == 409
