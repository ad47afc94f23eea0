"""Runs of real daemons that use MCP servers, through the death of either."""

import os
import signal
import sys

import pytest

from tests.native.mcp.homes import MARK, McpHome, ask, files_with
from tests.native.mcp.world import server_argv


def test_a_server_killed_in_a_call_and_a_cancel_in_another(home: McpHome) -> None:
    home.define(own={"command": server_argv("plain", home.workspace), "env_from": ["MARKED"]})
    home.begin()
    run_id = home.run_script(ask("bump", name="one"), ask("hang"), ask("environment"), ask("noise"), {"text": "Done."})
    home.wait_for(lambda: home.lines("hanging"))
    os.kill(home.servers()[-1], signal.SIGKILL)
    home.wait_for(lambda: home.completed(run_id))

    assert home.outcomes(run_id) == [("ok", "tool"), ("interrupted", "tool"), ("ok", "tool"), ("ok", "tool")]
    told = home.records(run_id, "ToolCallDone")[1]["result"]
    assert told.startswith("[error] interrupted: the MCP server 'own' went away")
    assert "Verify the state" in told
    assert "[secret MARKED]" in home.records(run_id, "ToolCallDone")[2]["result"]
    assert (home.lines("one"), len(home.servers())) == (["one"], 2)

    second = home.run_script(ask("hang"), {"text": "Never."})
    home.wait_for(lambda: len(home.lines("hanging")) == 2)
    home.request("POST", f"/v1/runs/{second}/cancel", {})
    home.wait_for(lambda: home.shown(second)["status"] == "cancelled")

    assert home.outcomes(second) == [("cancelled", "tool")]
    home.wait_for(lambda: not home.processes())
    assert files_with(home, MARK) == []
    assert any(b"mcp server stderr" in file.read_bytes() for file in home.path.glob("daemon.log"))


@pytest.mark.slow
def test_a_daemon_killed_in_a_call_leaves_it_unknown_and_no_server_behind(home: McpHome) -> None:
    (home.workspace / "stubborn").touch()
    home.define(own={"command": server_argv("plain", home.workspace)})
    home.begin()
    run_id = home.run_script(ask("bump", name="one"), ask("hang"), ask("bump", name="two"), {"text": "Done."})
    home.wait_for(lambda: home.lines("hanging"))
    home.daemon.kill()
    home.daemon.wait()
    (old,) = home.processes()
    (home.workspace / "stubborn").unlink()
    home.begin()

    assert old not in home.processes(), "the server of the daemon that was killed was not ended"
    home.wait_for(lambda: home.completed(run_id))
    assert home.outcomes(run_id) == [("ok", "tool"), ("interrupted", "recovery"), ("ok", "tool")]
    assert len(home.records(run_id, "RunRevived")) == 1
    assert (home.lines("one"), home.lines("two"), home.lines("hanging")) == (["one"], ["two"], ["hanging"])
    home.wait_for(lambda: not home.processes())


def test_a_run_whose_server_cannot_start_is_parked_and_goes_on_when_it_can(home: McpHome) -> None:
    command = home.path / "server"
    home.define(own={"command": str(command)})
    home.begin()
    run_id = home.run_script(ask("bump", name="one"), {"text": "Done."})
    home.wait_for(lambda: home.shown(run_id)["status"] == "parked")

    shown = home.shown(run_id)
    assert (shown["needs"], shown["wake_at"] is not None) == ("provider", True)
    assert "cannot be started: No such file or directory" in home.records(run_id, "RunParked")[0]["reason"]

    command.write_text("#!/bin/sh\n" + f'exec "{sys.executable}" "{home.path / "start.py"}" "{home.workspace}"\n')
    (home.path / "start.py").write_text(server_argv("plain", home.workspace)[2].replace("; ", "\n"))
    command.chmod(0o700)
    home.request("POST", f"/v1/runs/{run_id}/resume", {})
    home.wait_for(lambda: home.completed(run_id))
    assert home.outcomes(run_id) == [("ok", "tool")]


@pytest.mark.slow
def test_a_drain_gives_a_call_its_grace_and_the_next_daemon_says_what_is_known(home: McpHome) -> None:
    home.define(own={"command": server_argv("plain", home.workspace)})
    home.begin()
    run_id = home.run_script(ask("hang"), {"text": "Done."})
    home.wait_for(lambda: home.lines("hanging"))
    assert home.daemon.stop() == 0
    assert home.processes() == []
    home.begin()
    home.wait_for(lambda: home.completed(run_id))

    assert home.outcomes(run_id) == [("interrupted", "recovery")]
    (revived,) = home.records(run_id, "RunRevived")
    assert (revived["cause"], revived["charged"]) == ("restart", False)
