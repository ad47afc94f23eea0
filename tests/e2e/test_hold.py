"""Held runs are listed and served, none is entered and nothing is ended, until a person releases them."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onward.core.line import decode, encode_body, seal
from onward.processes.identity import boot_id
from tests.e2e.instances import Instance, shell

SLOW: dict[str, Any] = {"text": "begun", "delay_s": 30}
DONE: dict[str, Any] = {"text": "done"}


def at_work(instance: Instance) -> str:
    """Start a run; returns its id once its model is asked."""
    run_id = instance.run(SLOW, DONE)
    instance.until(lambda: instance.records(run_id, "InferenceStarted"))
    instance.script(DONE)
    return run_id


def held(instance: Instance, run_id: str) -> list[str]:
    """Assert that the run is held and untouched; returns the words that say why."""
    before = (instance.runs / run_id / "journal.jsonl").read_bytes()
    instance.until(lambda: instance.show(run_id).get("waiting_on") == "release")
    assert instance.show(run_id)["error"]
    assert (instance.runs / run_id / "journal.jsonl").read_bytes() == before
    assert instance.get("/readyz").status == 200
    known = instance.get("/v1/daemon").body
    assert (known["hold"]["runs"], known["recovery"]["counts"], known["recovery"]["done"]) == (1, {"held": 1}, True)
    return list(known["hold"]["reasons"])


def release(instance: Instance, run_id: str | None = None) -> None:
    answer = instance.post("/v1/daemon/release", {"run_id": run_id})
    assert answer.status == 200, answer


def ends(instance: Instance, run_id: str) -> None:
    assert instance.until_status(run_id, "completed", "failed", "quarantined")["status"] == "completed"
    assert len(instance.records(run_id, "RunRevived")) == 1
    assert instance.get("/v1/daemon").body["recovery"]["counts"] == {"resumed": 1}


def test_a_hold_lasts_over_restarts_until_it_is_released(instance: Instance) -> None:
    instance.start()
    answer = instance.post("/v1/daemon/hold", {"reason": "an upgrade"})
    assert (answer.status, answer.body["hold"]["reasons"]) == (200, {"asked": "an upgrade"})
    run_id = instance.run(DONE)
    instance.until_status(run_id, "waiting")
    assert instance.types(run_id) == ["RunStarted"]
    instance.kill(15)
    instance.start()
    assert held(instance, run_id) == ["asked"]
    assert instance.show(run_id)["error"] == "an upgrade"
    assert instance.get("/readyz").body == {"ready": True, "held": ["asked"]}
    release(instance)
    assert instance.until_status(run_id, "completed")["result"] == "done"
    assert not (instance.runs / "HOLD").exists()
    assert instance.get("/v1/daemon").body["hold"] == {"on": False, "reasons": {}, "runs": 0}


def test_a_hold_file_ends_nothing_and_one_run_may_go_on(instance: Instance) -> None:
    """A command that no call waits for is left alone until the release; a released run leaves the others held."""
    second = instance.start().run(shell("sleep 300"), DONE)
    instance.until_running(second)
    first = at_work(instance)
    instance.kill()
    shutil.rmtree(instance.call_dir(second))  # as if it had been settled
    (instance.runs / "HOLD").write_text("restored yesterday")
    instance.start()
    instance.until(lambda: instance.get("/v1/daemon").body["hold"]["runs"] == 2)
    release(instance, first)
    assert instance.until_status(first, "completed")["result"] == "done"
    assert instance.show(second)["waiting_on"] == "release"
    assert processes(instance, second)
    release(instance)
    instance.until(lambda: not processes(instance, second))
    instance.until_status(second, "completed")
    (call,) = instance.records(second, "ToolCallDone")
    assert call["outcome"] == "interrupted"


def processes(instance: Instance, run_id: str) -> list[str]:
    """The pids of what runs for this run."""
    marker = f"ONWARD_RUN_ID={run_id}".encode()
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if marker in Path("/proc", name, "environ").read_bytes().split(b"\0"):
                found.append(name)
        except OSError:
            continue
    return found


@pytest.mark.slow
def test_a_copied_runs_directory_waits_and_leaves_the_original_alone(
    instance: Instance, make: Callable[..., Instance]
) -> None:
    """Its release is durable, its processes are its own from then on, and the original's command goes on."""
    run_id = instance.start().run(shell("echo begun; sleep 300"), [{"when": "interrupted", "text": "seen"}, DONE])
    instance.until_running(run_id)
    copy = make("copy")
    shutil.copytree(instance.runs, copy.runs)
    copy.start()
    assert held(copy, run_id) == ["copy"]
    copy.kill()
    copy.start()  # nobody has released it meanwhile
    assert held(copy, run_id) == ["copy"]
    release(copy)
    assert copy.until_status(run_id, "completed")["result"] == "seen"
    assert instance.show(run_id)["status"] == "active"
    assert (copy.runs / ".instance").read_text() != (instance.runs / ".instance").read_text()
    later = copy.run(DONE)
    copy.until_status(later, "completed")
    copy.kill()
    copy.start()
    assert copy.get("/v1/daemon").body["hold"] == {"on": False, "reasons": {}, "runs": 0}
    assert processes(instance, run_id)
    instance.post(f"/v1/runs/{run_id}/cancel", {})
    instance.until_status(run_id, "cancelled")


@pytest.mark.slow
def test_one_run_that_was_copied_in_waits_alone(instance: Instance, make: Callable[..., Instance]) -> None:
    other = make("other")
    run_id = at_work(other.start())
    other.kill()
    instance.start().kill(15)
    shutil.copytree(other.runs / run_id, instance.runs / run_id)
    instance.start()
    assert held(instance, run_id) == []
    instance.kill(15)
    instance.start()
    assert held(instance, run_id) == []
    mine = instance.run(DONE)
    instance.until_status(mine, "completed")
    release(instance, run_id)
    ends(instance, run_id)


@pytest.mark.slow
def test_a_daemon_told_to_hold_does_so_until_it_is_released(instance: Instance) -> None:
    run_id = at_work(instance.start())
    instance.kill()
    instance.start(HOLD="1")
    assert held(instance, run_id) == ["asked"]
    release(instance)
    ends(instance, run_id)


@pytest.mark.slow
@pytest.mark.parametrize(("deaths", "words"), [(14, []), (15, ["crash-loop"])])
def test_a_daemon_that_dies_again_and_again_begins_held(instance: Instance, deaths: int, words: list[str]) -> None:
    """The fifteenth time within five minutes. Released, it begins anew."""
    run_id = at_work(instance.start())
    instance.kill(15)
    file = instance.runs / "daemon.jsonl"
    lines = file.read_bytes()
    began = decode(lines.splitlines()[-1])
    started = {"type": "DaemonStarted", "boot_id": boot_id(), "pid": 1}
    last = range(began["seq"] + 1, began["seq"] + 1 + deaths)
    file.write_bytes(lines + b"".join(seal(seq, 0, began["ts"], encode_body(started)) for seq in last))
    instance.start()
    if not words:
        assert instance.until_status(run_id, "completed")["result"] == "done"
        return
    assert held(instance, run_id) == words
    release(instance)
    instance.until_status(run_id, "completed")
    instance.kill()
    assert instance.start().get("/v1/daemon").body["hold"]["on"] is False
