"""A full disk: runs wait visibly, nothing is started without its intent, and all go on by themselves."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.instances import Instance, shell

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")


@pytest.fixture
def instance(make: Callable[..., Instance]) -> Iterator[Instance]:
    made = make()
    made.runs.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "tmpfs", str(made.runs)], check=True)
    yield made
    made.end()
    subprocess.run(["umount", "-l", str(made.runs)], check=True)


def fill(runs: Path) -> None:
    """Take the last byte."""
    with (runs / "filling").open("ab", buffering=0) as file:
        for size in (65536, 4096, 1):
            try:
                while file.write(b"x" * size) == size:
                    pass
            except OSError:
                continue


USAGE = {"input_tokens": 10, "output_tokens": 5, "cost_usd": 0.5}
LONG = "t" * 6000
"""More than what may be left in the last page of a journal."""


def check_nothing_lost_or_doubled(instance: Instance, run_id: str) -> None:
    ended = instance.until_status(run_id, "completed", "failed", timeout_s=60)
    assert (ended["result"], ended["turn"], ended["revivals"]["attempts"]) == ("done", 3, 0)
    assert (ended["totals"]["tokens_in"], ended["totals"]["cost_usd"], ended["totals"]["tool_calls"]) == (20, 1.0, 2)
    assert (instance.workspace / "file").read_text() == "x\n" * 2
    seqs = [record["seq"] for record in instance.records(run_id)]
    assert seqs == list(range(1, len(seqs) + 1))


def test_a_run_waits_for_space_and_goes_on_by_itself_with_nothing_lost_or_doubled(instance: Instance) -> None:
    step = shell("echo x >> file", usage=USAGE, text=LONG)
    run_id = instance.start().run(step, {**step, "delay_s": 4}, {"text": "done"})
    instance.until(lambda: instance.types(run_id)[-2:] == ["ToolCallDone", "InferenceStarted"])
    instance.until(lambda: not instance.call_dir(run_id).exists())  # what is swept later would make room
    fill(instance.runs)
    shown = instance.until_status(run_id, "parked")
    assert (shown["needs"], "space" in shown["error"]) == ("disk", True)
    assert (instance.workspace / "file").read_text() == "x\n"

    refused = instance.ask_for(f"scripted/{instance.home}/script.json")
    assert (refused.status, refused.body["code"]) == (507, "disk-full")
    assert set(instance.listed()) == {run_id}
    assert instance.get("/readyz").status == 200

    (instance.runs / "filling").unlink()
    check_nothing_lost_or_doubled(instance, run_id)
    assert instance.ask_for(f"scripted/{instance.home}/script.json").status == 201


def test_a_command_whose_end_cannot_be_recorded_is_waited_for(instance: Instance) -> None:
    """Its launcher stays alive until there is space for what came of it."""
    go = shell("while [ ! -e go ]; do sleep 0.05; done; echo x >> file; touch ended", usage=USAGE, text=LONG)
    run_id = instance.start().run(go, {**go, "delay_s": 0.1}, {"text": "done"})
    instance.until_running(run_id)
    fill(instance.runs)
    (instance.workspace / "go").touch()
    instance.until((instance.workspace / "ended").exists)
    assert instance.show(run_id)["status"] in ("active", "parked")
    assert instance.records(run_id, "ToolCallDone") == []
    (instance.runs / "filling").unlink()
    check_nothing_lost_or_doubled(instance, run_id)


def test_a_daemon_begins_and_stops_on_a_full_disk(instance: Instance) -> None:
    run_id = instance.start().run({"text": "t", "delay_s": 3600})
    instance.until(lambda: instance.types(run_id)[-1] == "InferenceStarted")
    instance.kill()
    instance.script({"text": "done " * 2000})
    fill(instance.runs)
    instance.start()
    shown = instance.until_status(run_id, "parked")
    assert shown["needs"] == "disk"
    (instance.runs / "filling").unlink()
    assert instance.until_status(run_id, "completed", timeout_s=60)["revivals"]["charged"] == 1
    fill(instance.runs)
    assert instance.kill(15) == 0


def without_inodes(runs: Path) -> None:
    """Take the last inode: nothing new can be made, though files can grow."""
    number = 0
    while True:
        try:
            (runs / f"filling-{number}").touch(exist_ok=False)
        except OSError:
            return
        number += 1


def make_room(runs: Path) -> None:
    for filling in runs.glob("filling*"):
        filling.unlink()


def test_a_cancel_ends_the_command_though_no_file_can_be_made(instance: Instance) -> None:
    subprocess.run(["mount", "-o", "remount,nr_inodes=60", str(instance.runs)], check=True)
    run_id = instance.start().run(shell("echo $$ > begun; sleep 60; touch ended"), {"text": "done"})
    instance.until(lambda: (instance.workspace / "begun").exists() and (instance.workspace / "begun").read_text())
    command = int((instance.workspace / "begun").read_text())
    without_inodes(instance.runs)
    assert instance.post(f"/v1/runs/{run_id}/cancel", {}).status == 200
    instance.until(lambda: not Path(f"/proc/{command}").exists())
    make_room(instance.runs)
    instance.until_status(run_id, "cancelled")
    (done,) = instance.records(run_id, "ToolCallDone")
    assert (done["outcome"], "nothing was done" in done["result"]) == ("cancelled", False)
    assert not (instance.workspace / "ended").exists()


@pytest.mark.parametrize("take", [fill, without_inodes])
def test_recovery_on_a_full_disk_waits_for_space_and_loses_no_result(
    instance: Instance, take: Callable[[Path], None]
) -> None:
    subprocess.run(["mount", "-o", "remount,nr_inodes=60", str(instance.runs)], check=True)
    command = "touch begun; until [ -e go ]; do sleep 0.05; done; echo x >> file; echo it is done"
    run_id = instance.start().run(shell(command), [{"when": "it is done", "text": "real"}, {"text": "other"}])
    instance.until((instance.workspace / "begun").exists)
    instance.kill()
    take(instance.runs)
    (instance.workspace / "go").touch()
    instance.start()
    instance.until(lambda: instance.get("/v1/daemon").body["recovery"]["done"])
    assert instance.show(run_id)["status"] not in ("quarantined", "failed")
    make_room(instance.runs)
    ended = instance.until_status(run_id, "completed", "failed", "quarantined", timeout_s=60)
    assert (ended["status"], ended["result"]) == ("completed", "real")
    assert (instance.workspace / "file").read_text() == "x\n"
