"""A command in flight outlives the daemon: its real result reaches the model, and it is never run twice."""

import os
import signal

import pytest

from tests.e2e.instances import Instance, shell
from tests.processes.launching import children
from tests.support import state_of

SEEN = [{"when": "it is done", "text": "saw the real result"}, {"text": "saw something else"}]


def writing(seconds: float) -> str:
    return f"echo begun; sleep {seconds}; echo x >> file; echo it is done"


@pytest.mark.slow
def test_a_command_of_twenty_seconds_goes_on_while_the_daemon_is_killed(instance: Instance) -> None:
    run_id = instance.start().run(shell(writing(20)), SEEN)
    instance.until_running(run_id)
    instance.kill()
    assert not (instance.workspace / "file").exists()
    ended = instance.start().until_status(run_id, "completed", "failed", timeout_s=60)
    assert ended["result"] == "saw the real result"
    assert (instance.workspace / "file").read_text() == "x\n"
    (done,) = instance.records(run_id, "ToolCallDone")
    assert (done["outcome"], done["settled_by"], done["reason"]) == ("ok", "tool", "adopted")
    assert done["duration_s"] >= 20
    assert instance.records(run_id, "RunRevived") == []  # the run only waited
    instance.until(lambda: not instance.call_dir(run_id).exists())


def test_a_command_that_ended_while_no_daemon_ran_is_settled_with_its_real_result(instance: Instance) -> None:
    run_id = instance.start().run(shell(writing(0.5)), SEEN)
    instance.until_running(run_id)
    instance.kill()
    instance.until((instance.call_dir(run_id) / "exit").exists)
    ended = instance.start().until_status(run_id, "completed", "failed")
    assert ended["result"] == "saw the real result"
    assert (instance.workspace / "file").read_text() == "x\n"
    (done,) = instance.records(run_id, "ToolCallDone")
    assert (done["outcome"], done["reason"]) == ("ok", "completed-unpersisted")


def test_a_launcher_that_was_overtaken_by_recovery_never_runs_its_command(instance: Instance) -> None:
    """It was slow to start; by the time it comes, the model has been told that the call did not run."""
    turns = [shell("touch ran"), [{"when": "not started", "text": "told so"}, {"text": "told something else"}]]
    instance.start(ONWARD_LAUNCHER_FAULT="launcher.before_identity=stop")
    run_id = instance.run(*turns)
    held_up: list[int] = []

    def stopped() -> bool:
        held_up[:] = [pid for pid in children(instance.pid) if state_of(pid) == "T"]
        return bool(held_up)

    instance.until(stopped)
    instance.kill()
    ended = instance.start().until_status(run_id, "completed", "failed")
    (pid,) = held_up
    with open(os.pidfd_open(pid)) as launcher:
        signal.pidfd_send_signal(launcher.fileno(), signal.SIGCONT)
        instance.until(lambda: state_of(pid) in ("", "Z"))
    assert ended["result"] == "told so"
    (done,) = instance.records(run_id, "ToolCallDone")
    assert (done["outcome"], done["settled_by"]) == ("not_started", "recovery")
    assert not (instance.workspace / "ran").exists()


def test_nothing_of_the_daemons_environment_reaches_a_command(instance: Instance) -> None:
    instance.start(MARK_OF_THE_DAEMON="hunter2-hunter2", AWS_SECRET_ACCESS_KEY="k" * 40)
    run_id = instance.run(shell("env; echo --; cat /proc/$PPID/environ | tr '\\0' '\\n'"), {"text": "done"})
    instance.until_status(run_id, "completed")
    (done,) = instance.records(run_id, "ToolCallDone")
    assert "ONWARD_RUN_ID=" in done["result"]
    assert "hunter2" not in done["result"]
    names = {line.partition("=")[0] for line in done["result"].splitlines() if "=" in line}
    assert not names & {"MARK_OF_THE_DAEMON", "AWS_SECRET_ACCESS_KEY", "ONWARD_HOME", "ONWARD_LOG__FORMAT"}
    everything = b"".join(path.read_bytes() for path in instance.runs.rglob("*") if path.is_file())
    assert b"hunter2" not in everything


def test_a_command_goes_on_over_crashes_of_the_daemon_and_its_real_result_reaches_the_model(instance: Instance) -> None:
    command = "while [ ! -e go ]; do sleep 0.05; done; echo x >> file; echo it is done"
    run_id = instance.start().run(shell(command), SEEN)
    instance.until_running(run_id)
    for _ in range(2):
        instance.kill()
        instance.start()
    instance.until(lambda: instance.get("/v1/daemon").body["recovery"]["done"])
    (instance.workspace / "go").touch()
    ended = instance.until_status(run_id, "completed", "failed")
    assert (ended["result"], (instance.workspace / "file").read_text()) == ("saw the real result", "x\n")
    (done,) = instance.records(run_id, "ToolCallDone")
    assert (done["outcome"], done["settled_by"], done["reason"]) == ("ok", "tool", "adopted")
    assert instance.records(run_id, "RunRevived") == []  # the run only waited
    instance.until(lambda: not instance.call_dir(run_id).exists())
