"""A run that kills the daemon is found and left alone; the others on the same daemon go on to their ends."""

import os
from collections.abc import Callable
from typing import Any

import pytest

from onward.core.line import decode
from onward.recovery import inspect, revive
from tests.e2e.instances import Instance, shell
from tests.support import until

OTHERS = 40
SLOW_ANSWER: dict[str, Any] = {"text": "done", "delay_s": 0.15}


def facts(instance: Instance, *types: str) -> list[dict[str, Any]]:
    found = [decode(line) for line in (instance.runs / "daemon.jsonl").read_bytes().splitlines()]
    return [fact for fact in found if not types or fact["type"] in types]


def lives_until_one_stays(instance: Instance, fault: str, is_over: Callable[[], object]) -> int:
    """Start daemons that meet `fault` until one lives long enough; returns how many died."""
    for deaths in range(8):
        daemon = instance.daemon = instance.launch(ONWARD_FAULT=fault, ONWARD_DAEMON__ENTRY_RATE="500")

        def seen(daemon: Any = daemon) -> object:
            if daemon.poll() is not None:
                return "died"
            try:
                return is_over()
            except (OSError, KeyError):
                return None

        if until(seen, 120) != "died":
            return deaths
        assert daemon.returncode == -9, instance.log.read_text()[-2000:]
    raise AssertionError("no daemon stays alive")


@pytest.mark.slow
@pytest.mark.parametrize(("point", "doing"), [("run.enter", "entered"), ("run.fold", "read")])
def test_a_run_that_kills_the_daemon_is_quarantined_and_forty_others_finish(
    instance: Instance, point: str, doing: str
) -> None:
    """It may kill three daemons more at most. The others are charged for these deaths and no others, and end."""
    instance.start()
    model = instance.script({"text": "begun", "calls": [], "delay_s": 30}, name="first.json")
    run_ids = [instance.ask_for(model, key=str(n)).body["run_id"] for n in range(OTHERS + 1)]
    instance.until(lambda: all(instance.records(run_id, "InferenceStarted") for run_id in run_ids))
    instance.kill()
    instance.script(shell("true", **SLOW_ANSWER), SLOW_ANSWER, name="first.json")
    deadly, others = run_ids[OTHERS // 2], set(run_ids) - {run_ids[OTHERS // 2]}

    def over() -> bool:
        listed = instance.listed()
        return all(listed[run_id]["status"] == "completed" for run_id in others)

    deaths = lives_until_one_stays(instance, f"{point}@{deadly}=kill", over)
    assert deaths == 3
    for run_id in others:
        charged = [record for record in instance.records(run_id, "RunRevived") if record["charged"]]
        assert len(charged) <= deaths + 1
        assert instance.types(run_id).count("MessageAdded") <= len(charged)
        (call,) = instance.records(run_id, "ToolCallDone")
        assert call["outcome"] in ("ok", "interrupted", "not_started")  # the deaths may have met it at any moment
    (fact,) = facts(instance, "RunSuspended")
    assert (fact["run_id"], doing in fact["reason"]) == (deadly, True)
    shown = instance.show(deadly)
    assert (shown["status"], shown["error"]) == ("quarantined", fact["reason"])
    assert instance.get(f"/v1/runs/{deadly}/records").status == 409
    refused = instance.post(f"/v1/runs/{deadly}/messages", {"text": "hello"})
    assert (refused.status, f"onward revive {deadly}" in refused.body["detail"]) == (409, True)
    report = instance.get("/v1/daemon").body["recovery"]
    assert {"run_id": deadly, "outcome": "quarantined", "reason": fact["reason"]} in report["reasons"]


@pytest.mark.slow
@pytest.mark.parametrize("living", [True, False], ids=["by the daemon", "while none runs"])
def test_a_quarantine_by_the_daemon_lasts_until_the_run_is_revived(instance: Instance, living: bool) -> None:
    """The journal stays unread, whoever starts the daemon and however the one before ended."""
    instance.start()
    run_id = instance.run({"text": "begun", "delay_s": 30}, {"text": "done"})
    instance.until(lambda: instance.records(run_id, "InferenceStarted"))
    instance.kill()
    lives_until_one_stays(instance, f"run.fold@{run_id}=kill", lambda: instance.show(run_id)["status"] == "quarantined")
    instance.kill(15)
    journal = instance.runs / run_id / "journal.jsonl"
    before = journal.read_bytes()
    os.truncate(journal, len(before.splitlines(keepends=True)[0]))  # nobody looks behind what it began with
    instance.start()
    assert instance.show(run_id)["status"] == "quarantined"
    assert instance.listed()[run_id]["task"] == "do it"
    journal.write_bytes(before)
    instance.script({"text": "done"})
    assert inspect(journal.parent).reason == "quarantined"
    if living:
        told = instance.post(f"/v1/runs/{run_id}/revive", {}).body["revival"]
        assert (told["ok"], told["reason"]) == (True, "quarantined")
    else:
        instance.kill()
        done = revive(journal.parent)
        assert (done.ok, done.reason, inspect(journal.parent).revivable) == (True, "quarantined", True)
        instance.start()
    assert instance.until_status(run_id, "completed", "quarantined")["result"] == "done"
