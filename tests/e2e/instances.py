"""Whole daemons on real disks, killed and started again; and what they answer over their sockets."""

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from onward.core.line import BadLine, decode
from onward.processes import LauncherSpawner
from tests.processes.delegated import within
from tests.support import PATIENCE_S, UnixConnection, until

Json = dict[str, Any]

# What `onward daemon` does (`--hold` where HOLD is set); told how often to look at its lock.
DAEMON = """
import os
import sys
from onward.config.places import find_places
from onward.config.settings import load_settings
from onward.errors import OnwardError
from onward.supervisor import main
main.LOCK_CHECK_S = float(sys.argv[1])
try:
    sys.exit(main.run_daemon(load_settings(find_places()), hold=bool(os.environ.get("HOLD"))))
except OnwardError as error:
    print(error, file=sys.stderr)
    sys.exit(error.exit_code)
"""


@dataclass(slots=True)
class Answer:
    status: int
    body: Any


@dataclass
class Instance:
    """One ONWARD_HOME. `start` and `kill` its daemon as often as you like; `end` leaves nothing running."""

    home: Path
    env: dict[str, str] = field(default_factory=dict)
    files: int | None = None
    """How many descriptors the daemon may have."""
    lock_check_s: float = 60.0
    cgroup: Path | None = None
    """The cgroup in which its daemon is started."""
    daemon: "subprocess.Popen[bytes] | None" = None

    def __post_init__(self) -> None:
        self.runs = self.home / "runs"
        self.workspace = self.home / "workspace"
        self.workspace.mkdir(parents=True)
        self.log = self.home / "daemon.log"

    @property
    def socket(self) -> Path:
        return self.home / "onward.sock"

    # Its life

    def launch(self, **env: str) -> "subprocess.Popen[bytes]":
        """Start a daemon, and do not wait for it."""

        kept = {name: os.environ[name] for name in ("PATH", "HOME", "PYTHONPATH") if name in os.environ}
        argv = [sys.executable, "-c", DAEMON, str(self.lock_check_s)]
        with self.log.open("ab") as log:
            daemon = subprocess.Popen(
                argv if self.cgroup is None else within(self.cgroup, argv),
                env={**kept, "ONWARD_HOME": str(self.home), "ONWARD_LOG__FORMAT": "json", **self.env, **env},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        if self.files is not None:
            resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (self.files, self.files))
        return daemon

    def start(self, **env: str) -> "Instance":
        """Start the daemon and wait until it answers."""
        self.daemon = self.launch(**env)
        until(self._answers)
        return self

    @property
    def pid(self) -> int:
        assert self.daemon is not None
        return self.daemon.pid

    def kill(self, number: int = signal.SIGKILL) -> int:
        """Send the daemon a signal and wait for its end; returns the exit code."""
        assert self.daemon is not None
        self.daemon.send_signal(number)
        return self.daemon.wait(60)

    def end(self) -> None:
        """End the daemon and every command that it left."""
        if self.daemon is not None and self.daemon.poll() is None:
            self.kill()
        with suppress(OSError):
            instance = (self.runs / ".instance").read_text().strip()
            anyio.run(LauncherSpawner(grace_s=0.1).end_leftovers, instance, frozenset[tuple[str, str]]())

    def _answers(self) -> bool:
        assert self.daemon is not None
        assert self.daemon.poll() is None, f"the daemon has ended: {self.log.read_text()[-3000:]}"
        try:
            return self.get("/readyz").status == 200
        except OSError:
            return False

    # What it is asked

    def get(self, path: str) -> Answer:
        return self._ask("GET", path)

    def text(self, path: str) -> str:
        """Return an answer that is no JSON."""
        connection = UnixConnection(self.home / "onward.sock", 30)
        try:
            connection.request("GET", path)
            return connection.getresponse().read().decode()
        finally:
            connection.close()

    def post(self, path: str, body: Json, **headers: str) -> Answer:
        return self._ask("POST", path, json.dumps(body), headers)

    def _ask(self, method: str, path: str, body: str | None = None, headers: dict[str, str] | None = None) -> Answer:
        connection = UnixConnection(self.socket, 30)
        try:
            sent = {"content-type": "application/json", "Onward-Request": "1", **(headers or {})}
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            return Answer(answer.status, json.loads(answer.read() or b"null"))
        finally:
            connection.close()

    def script(self, *turns: Any, name: str = "script.json") -> str:
        """Write a script; returns the model's name."""
        written = self.home / f"{name}.new"
        written.write_text(json.dumps({"turns": turns}))
        written.rename(self.home / name)  # runs that start now read it
        return f"scripted/{self.home / name}"

    def ask_for(self, model: str, *, key: str | None = None, task: str = "do it", **members: Any) -> Answer:
        body = {"task": task, "workspace": str(self.workspace), "model": model, **members}
        headers = {} if key is None else {"Idempotency-Key": key}
        return self.post("/v1/runs", body, **headers)

    def run(self, *turns: Any, **members: Any) -> str:
        """Start a run of a script; returns its id."""
        answer = self.ask_for(self.script(*turns), **members)
        assert answer.status in (200, 201), answer
        return str(answer.body["run_id"])

    def show(self, run_id: str) -> Json:
        shown: Json = self.get(f"/v1/runs/{run_id}").body
        return shown

    def listed(self) -> dict[str, Json]:
        """Every run as `ps` shows it, by id."""
        return {run["run_id"]: run for run in self.get("/v1/runs?limit=500").body["runs"]}

    def until_status(self, run_id: str, *statuses: str, timeout_s: float = PATIENCE_S) -> Json:
        """Wait until the run has one of the statuses; returns it as it is shown then."""
        shown: Json = {}

        def reached() -> bool:
            nonlocal shown
            shown = self.show(run_id)
            return shown.get("status") in statuses

        self.until(reached, timeout_s)
        return shown

    def until(self, condition: Callable[[], object], timeout_s: float = PATIENCE_S) -> None:
        until(condition, timeout_s)

    # What it leaves on the disk

    def records(self, run_id: str, *types: str) -> list[Json]:
        found = []
        for line in (self.runs / run_id / "journal.jsonl").read_bytes().split(b"\n"):
            with suppress(BadLine):
                found.append(decode(line))
        return [record for record in found if not types or record["type"] in types]

    def types(self, run_id: str) -> list[str]:
        return [record["type"] for record in self.records(run_id)]

    def call_dir(self, run_id: str, call_id: str = "t1c1") -> Path:
        return self.runs / run_id / "calls" / call_id

    def until_running(self, run_id: str, call_id: str = "t1c1") -> None:
        """Wait until the launcher of a call has begun its command."""
        self.until((self.call_dir(run_id, call_id) / "identity").exists)


def shell(command: str, **members: Any) -> Json:
    return {"calls": [{"name": "shell", "arguments": {"command": command}}], **members}


def asked(instance: Instance, run_id: str) -> int:
    """How often a model was asked."""
    return len(instance.records(run_id, "InferenceStarted"))
