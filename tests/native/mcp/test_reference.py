"""The reference servers of the protocol's own project, from npm: what others wrote works too.

They are installed into a temporary directory; without node or the registry there is nothing to test.
"""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from onward.core.vocabulary import Outcome
from tests.native.mcp.homes import McpHome, ask
from tests.native.mcp.world import McpWorld

PACKAGES = (
    "@modelcontextprotocol/server-everything@2026.8.31",
    "@modelcontextprotocol/server-filesystem@2026.8.31",
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the programs of the packages are."""
    if not shutil.which("npm") or not shutil.which("node"):
        pytest.skip("node and npm are not installed")
    where = tmp_path_factory.mktemp("reference")
    install = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(where), *PACKAGES]
    try:
        done = subprocess.run(install, capture_output=True, text=True, timeout=100)
    except subprocess.TimeoutExpired:
        pytest.skip("the npm registry does not answer")
    if done.returncode:
        pytest.skip(f"npm could not install the servers: {done.stderr[-300:]}")
    return where / "node_modules" / ".bin"


async def test_what_they_answer_is_understood(world: McpWorld, programs: Path) -> None:
    async with world.entered(own={"command": [str(programs / "mcp-server-everything"), "stdio"]}):
        echo = await world.call("echo", {"message": "hello"})
        total = await world.call("get-sum", {"a": 2, "b": 40})
        image = await world.call("get-tiny-image")
        structured = await world.call("get-structured-content", {"location": "Chicago"})
        wrong = await world.call("get-sum", {"a": "two"})
        late = await world.call("trigger-long-running-operation", {"duration": 60, "steps": 2}, deadline_s=0.5)
        after = await world.call("echo", {"message": "again"})

    assert echo.text == "Echo: hello"
    assert "42" in total.text
    assert "[image image/png" in image.text
    assert "temperature" in structured.text
    assert (wrong.outcome, wrong.text.startswith("[error] ")) == (Outcome.ERROR, True)
    assert late.outcome is Outcome.TIMEOUT
    assert after.text == "Echo: again"


def test_a_run_uses_them_and_goes_on_when_one_is_killed_in_a_call(home: McpHome, programs: Path) -> None:
    file = home.workspace / "note.txt"
    home.define(
        files={
            "command": [str(programs / "mcp-server-filesystem"), str(home.workspace)],
            "tools": ["*_file", "list_*"],
        },
        everything={"command": [str(programs / "mcp-server-everything"), "stdio"]},
    )
    home.begin()
    long = ask("trigger-long-running-operation", "everything", duration=300, steps=3)
    write = ask("write_file", "files", path=str(file), content="one")
    run_id = home.run_script(write, long, ask("echo", "everything", message="back"), {"text": "Done."})
    home.wait_for(lambda: len(home.records(run_id, "ToolCallStarted")) == 2)
    for pid in home.processes():
        if b"everything" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)
    home.wait_for(lambda: home.completed(run_id))

    first, killed, last = home.outcomes(run_id)
    assert (first, last) == (("ok", "tool"), ("ok", "tool"))
    assert killed[0] in ("interrupted", "error")  # the latter where it had not been sent yet
    assert home.records(run_id, "ToolCallDone")[2]["result"] == "Echo: back"
    assert file.read_text() == "one"
    home.wait_for(lambda: not home.processes())


def test_a_daemon_killed_in_a_call_of_one_leaves_none_behind(home: McpHome, programs: Path) -> None:
    home.define(everything={"command": [str(programs / "mcp-server-everything"), "stdio"]})
    home.begin()
    long = ask("trigger-long-running-operation", "everything", duration=300, steps=3)
    run_id = home.run_script(long, ask("echo", "everything", message="back"), {"text": "Done."})
    home.wait_for(lambda: home.records(run_id, "ToolCallStarted"))
    home.daemon.kill()
    home.daemon.wait()
    old = set(home.processes())
    home.begin()

    assert old.isdisjoint(home.processes())
    home.wait_for(lambda: home.completed(run_id))
    assert home.outcomes(run_id) == [("interrupted", "recovery"), ("ok", "tool")]
