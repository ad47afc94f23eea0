"""A clean stop: what works comes to rest and is noted, commands go on, and the next daemon charges nobody for it."""

import signal
import subprocess

import pytest

from tests.e2e.instances import Instance, shell
from tests.support import state_of, until

SEEN = [{"when": "it is done", "text": "saw the real result"}, {"text": "saw something else"}]
WAITING = "while [ ! -e go ]; do sleep 0.05; done; echo x >> file; echo it is done"


def test_a_stop_drains_and_the_next_daemon_goes_on_without_charging(instance: Instance) -> None:
    instance.start()
    command = instance.run(shell(WAITING), SEEN)
    asking = instance.ask_for(instance.script({"text": "answered", "delay_s": 3600}, name="slow.json"))
    asked = asking.body["run_id"]
    instance.until_running(command)
    instance.until(lambda: instance.types(asked)[-1] == "InferenceStarted")

    assert instance.kill(signal.SIGTERM) == 0
    assert not (instance.home / "onward.sock").exists()
    for run_id, in_flight in ((command, ["t1c1"]), (asked, [])):
        last = instance.records(run_id)[-1]
        assert (last["type"], last["in_flight"]) == ("DaemonDraining", in_flight)

    instance.script({"text": "answered"}, name="slow.json")
    instance.start()
    (instance.workspace / "go").touch()
    for run_id, result in ((command, "saw the real result"), (asked, "answered")):
        ended = instance.until_status(run_id, "completed", "failed")
        assert (ended["result"], ended["revivals"]["charged"]) == (result, 0)
        assert instance.records(run_id, "RunRevived") == []
        assert instance.records(run_id, "MessageAdded") == []
    assert (instance.workspace / "file").read_text() == "x\n"


def test_an_idle_daemon_stops_at_once_and_notes_it(instance: Instance) -> None:
    run_id = instance.start().run({"text": "done"})
    instance.until_status(run_id, "completed")
    before = instance.types(run_id)
    assert instance.kill(signal.SIGINT) == 0
    facts = [line for line in (instance.runs / "daemon.jsonl").read_text().splitlines() if "DaemonStopped" in line]
    assert (len(facts), instance.types(run_id)) == (1, before)


def ended_after(daemon: "subprocess.Popen[bytes]", number: int) -> bool:
    daemon.send_signal(number)
    return daemon.poll() is not None


def test_a_later_signal_ends_a_drain_at_once(instance: Instance) -> None:
    """A full disk, say, or a tool that hangs must not make an administrator wait."""
    (instance.workspace / "file").write_text("a" * 64 + "b")
    endless = {"name": "search_files", "arguments": {"pattern": "(a+)+$"}}
    run_id = instance.start().run({"calls": [endless]})
    instance.until(lambda: len(instance.types(run_id)) > 3)
    daemon = instance.daemon
    assert daemon is not None
    daemon.send_signal(signal.SIGTERM)
    instance.until(lambda: ended_after(daemon, signal.SIGINT))
    assert daemon.returncode == 1


def test_a_stop_that_is_told_twice_is_one_stop(instance: Instance) -> None:
    """When a session ends the daemon hears of it itself, and from its keeper."""
    run_id = instance.start().run({"text": "done", "delay_s": 60})
    instance.until(lambda: instance.types(run_id)[-1] == "InferenceStarted")
    daemon = instance.daemon
    assert daemon is not None
    daemon.send_signal(signal.SIGSTOP)  # so that it finds both signals when it looks
    daemon.send_signal(signal.SIGTERM)
    daemon.send_signal(signal.SIGINT)
    daemon.send_signal(signal.SIGCONT)
    assert daemon.wait(30) == 0
    assert instance.types(run_id)[-1] == "DaemonDraining"


def test_a_stop_that_is_told_when_all_is_done_changes_nothing(instance: Instance) -> None:
    """The interpreter takes a while to end: killed by a signal then, the daemon would be started again."""
    daemon = instance.start().daemon
    assert daemon is not None
    daemon.send_signal(signal.SIGTERM)
    until(lambda: '"stopped"' in instance.log.read_text())
    until(lambda: ended_after(daemon, signal.SIGTERM))
    assert daemon.returncode == 0


@pytest.mark.parametrize("point", ["facts.mend.before", "facts.flush.after"])
def test_a_stop_during_the_start_is_a_clean_stop(instance: Instance, point: str) -> None:
    """Whether or not it has noted its start: it ends by itself, and neither it nor a run is charged with a crash."""
    run_id = instance.start().run({"text": "answered", "delay_s": 3600})
    instance.until(lambda: instance.types(run_id)[-1] == "InferenceStarted")
    assert instance.kill(signal.SIGTERM) == 0

    starting = instance.launch(ONWARD_FAULT=f"{point}=stop")
    until(lambda: state_of(starting.pid) == "T")
    starting.send_signal(signal.SIGTERM)
    starting.send_signal(signal.SIGCONT)
    assert starting.wait(30) == 0
    facts = (instance.runs / "daemon.jsonl").read_text()
    assert facts.count("DaemonStarted") == facts.count("DaemonStopped")

    instance.script({"text": "answered"})
    instance.start()
    assert instance.until_status(run_id, "completed", "failed")["revivals"]["charged"] == 0


@pytest.mark.slow
def test_asking_the_daemon_to_end_commands_too_journals_what_came_of_them(instance: Instance) -> None:
    run_id = instance.start().run(shell("echo some; sleep 60"), {"text": "seen"})
    instance.until_running(run_id)
    assert instance.post("/v1/daemon/stop", {"leave_running": False}).status == 202
    assert instance.daemon is not None
    assert instance.daemon.wait(60) == 0
    (done,) = instance.records(run_id, "ToolCallDone")
    assert (done["outcome"], done["settled_by"]) == ("interrupted", "tool")
    assert instance.records(run_id)[-1]["in_flight"] == []
    assert instance.start().until_status(run_id, "completed")["result"] == "seen"
