"""An `ONWARD_HOME` whose agent has MCP servers, and real daemons in it."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.crash.harness import Daemon, Home
from tests.support import until

MARK = "a-marked-value-0123456789"
WAIT_S = 60.0

Json = dict[str, Any]


class McpHome(Home):
    """A home whose agent has one server, which leaves its effects in the workspace."""

    def define(self, **servers: Json) -> None:
        """Write the agent: these servers, as TOML writes JSON's strings, numbers and lists too."""
        lines = ["[limits]", "call_deadline_s = 60"]
        for name, table in servers.items():
            lines += [f"[mcp.{name}]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
        (self.path / "config" / "agents" / "sweep.toml").write_text("\n".join(lines))

    def begin(self) -> Daemon:
        env = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        env |= {"ONWARD_HOME": str(self.path), "MARKED": MARK, "ONWARD_LOG__LEVEL": "debug"}
        daemon = Daemon(env=env, log=str(self.path / "daemon.log"))
        self.daemons.append(daemon)
        assert self.when_ready()
        return daemon

    def run_script(self, *turns: Json) -> str:
        script = self.path / f"script-{len(self.run_dirs())}.json"
        script.write_text(json.dumps({"turns": turns}))
        run_id = self.start_run(script, script.stem)
        assert run_id is not None
        return run_id

    def shown(self, run_id: str) -> Json:
        return self.listed()[run_id]

    def records(self, run_id: str, kind: str) -> list[Json]:
        journal = (self.runs / run_id / "journal.jsonl").read_bytes().splitlines()
        # Read as a person would, without the seal.
        found = [json.loads(line[line.index(b"{") : line.rindex(b"}") + 1]) for line in journal if line.strip()]
        return [record for record in found if record["type"] == kind]

    def outcomes(self, run_id: str) -> list[tuple[str, str]]:
        return [(done["outcome"], done["settled_by"]) for done in self.records(run_id, "ToolCallDone")]

    def lines(self, beginning: str) -> list[str]:
        """The effects that begin so."""
        file = self.workspace / "effects"
        return [line for line in file.read_text().splitlines() if line.startswith(beginning)] if file.exists() else []

    def servers(self) -> list[int]:
        return [int(line.partition(" ")[2]) for line in self.lines("started ")]

    def wait_for(self, condition: Callable[[], object]) -> None:
        until(condition, WAIT_S)

    def completed(self, run_id: str) -> bool:
        return bool(self.shown(run_id)["status"] == "completed")


def ask(tool: str, server: str = "own", **arguments: object) -> Json:
    """A turn of the scripted model that calls one tool."""
    return {"calls": [{"name": f"mcp__{server}__{tool}", "arguments": arguments}]}


def files_with(home: Home, text: str) -> list[Path]:
    return [file for file in home.path.rglob("*") if file.is_file() and text.encode() in file.read_bytes()]
