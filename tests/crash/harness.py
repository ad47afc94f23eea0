"""Real daemons under `ONWARD_HOME` in a directory of the test's own: started, asked, killed, and started again."""

import http.client
import json
import os
import select
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from onward.processes.launcher_kernel import read_small
from tests.crash.journals import read_journal
from tests.support import UnixConnection, until

ROOT = Path(__file__).parents[2]
KILLED = -signal.SIGKILL
LIFE_S = 60.0
"""No life of a daemon in this suite takes longer, on a slow machine either."""

DEFINITION = """
model = "scripted/none"
[limits]
call_deadline_s = 60
max_stalled_revivals = 1000000
"""

TERMINAL = {"completed", "failed", "cancelled"}
RESTING = TERMINAL | {"parked", "paused", "quarantined", "damaged"}

Json = dict[str, Any]


@cache
def nursery() -> "subprocess.Popen[str]":
    """The program that forks daemons, one per test process; it ends, and they with it, when this process does."""
    argv = [sys.executable, "-m", "tests.crash.daemon"]
    return subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ask_nursery(**asked: object) -> int:
    parent = nursery()
    assert parent.stdin is not None
    assert parent.stdout is not None
    parent.stdin.write(json.dumps(asked) + "\n")
    parent.stdin.flush()
    return int(parent.stdout.readline())


class Daemon:
    """One daemon process."""

    def __init__(self, **asked: object) -> None:
        self.pid = ask_nursery(**asked)
        self.pidfd = os.pidfd_open(self.pid)
        self.status: int | None = None

    def is_alive(self) -> bool:
        return not self.ends_within(0.0)

    def ends_within(self, seconds: float) -> bool:
        return self.status is not None or bool(select.select([self.pidfd], [], [], seconds)[0])

    def kill(self) -> None:
        if self.is_alive():
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)

    def stop(self) -> int:
        """End it as systemd would; returns its exit code."""
        if self.is_alive():
            signal.pidfd_send_signal(self.pidfd, signal.SIGTERM)
        return self.wait()

    def wait(self, timeout_s: float = LIFE_S) -> int:
        """Return its exit code, negative for a signal."""
        if self.status is None:
            ended, _, _ = select.select([self.pidfd], [], [], timeout_s)
            assert ended, f"daemon {self.pid} did not end within {timeout_s} s"
            self.status = ask_nursery(wait=self.pid)
            os.close(self.pidfd)
        return self.status


@dataclass(slots=True)
class Home:
    """An `ONWARD_HOME`, and who lives in it. `close` ends everything."""

    path: Path
    noted: bool = False
    """Whether what is flushed is noted, for a power cut."""
    daemons: list[Daemon] = field(default_factory=list)
    promised: dict[str, str] = field(default_factory=dict)
    """The run that was acknowledged for each key."""

    def __post_init__(self) -> None:
        self.workspace.mkdir(mode=0o700)
        agents = self.path / "config" / "agents"
        agents.mkdir(parents=True, mode=0o700)
        (agents / "sweep.toml").write_text(DEFINITION)

    @property
    def runs(self) -> Path:
        return self.path / "runs"

    @property
    def workspace(self) -> Path:
        return self.path / "work"

    @property
    def notes(self) -> Path:
        return self.path / "notes"

    @property
    def daemon(self) -> Daemon:
        return self.daemons[-1]

    def run_dirs(self) -> list[Path]:
        return [path for path in sorted(self.runs.glob("*")) if path.is_dir() and not path.name.startswith(".")]

    def start(
        self, fault: str = "", *, launcher_fault: str = "", trace: Path | None = None, boot_id: str = ""
    ) -> Daemon:
        """Start a daemon that meets `fault`; the one before must have ended."""
        env = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        env |= {"ONWARD_HOME": str(self.path), "ONWARD_FAULT": fault}
        if launcher_fault:
            env["ONWARD_LAUNCHER_FAULT"] = launcher_fault
        if trace:
            env["ONWARD_FAULT_TRACE"] = str(trace)
        log, notes = str(self.path / "daemon.log"), str(self.notes) if self.noted else None
        daemon = Daemon(env=env, log=log, notes=notes, boot_id=boot_id)
        self.daemons.append(daemon)
        return daemon

    def request(self, method: str, path: str, body: Json | None = None, key: str | None = None) -> Json | None:
        """Ask the daemon for what it does not refuse; None when nobody (or nobody any more) is there to answer."""
        answer = self.ask(method, path, body, key)
        if answer is None:
            return None
        assert answer[0] < 300, f"{method} {path} was answered with {answer[1]}"
        return answer[1]

    def ask(self, method: str, path: str, body: Json | None = None, key: str | None = None) -> tuple[int, Json] | None:
        """Ask the daemon; returns the status and what it says."""
        headers = {"content-type": "application/json", "onward-request": "1"}
        if key:
            headers["idempotency-key"] = key
        connection = UnixConnection(self.path / "onward.sock", LIFE_S)
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            answer = connection.getresponse()
            told = json.loads(answer.read())
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()
        return answer.status, dict(told)

    def when_ready(self) -> bool:
        """Wait until the daemon answers; False when it dies before."""
        return bool(until(lambda: self.request("GET", "/v1/daemon") or not self.daemon.is_alive(), LIFE_S) is not True)

    def start_run(self, script: Path, key: str) -> str | None:
        """Ask for a run; None when no answer came, so that nothing was promised."""
        body = {"task": f"run {key}", "workspace": str(self.workspace), "model": f"scripted/{script}", "agent": "sweep"}
        told = self.request("POST", "/v1/runs", body, key)
        if told is None:
            return None
        assert self.promised.setdefault(key, told["run_id"]) == told["run_id"], "an acknowledged run is gone"
        return str(told["run_id"])

    def listed(self) -> dict[str, Json]:
        """What `GET /v1/runs` shows, by run id; empty when nobody answers."""
        told = self.request("GET", "/v1/runs") or {"runs": []}
        return {run["run_id"]: run for run in told["runs"]}

    def has_recovered(self) -> bool:
        """Whether every run that the daemon found was looked at."""
        told = self.request("GET", "/v1/daemon")
        return told is not None and bool(told["recovery"]["done"])

    def rest(self, count: int = 1, timeout_s: float = LIFE_S) -> bool:
        """Wait until `count` runs rest and their indexes are written; False when the daemon dies before.

        A run that was shown at rest must not be shown otherwise meanwhile.
        """
        seen: dict[str, str] = {}

        def rested() -> str | None:
            if not self.daemon.is_alive():
                return "died"
            shown = self.listed()
            for run_id, run in shown.items():
                assert seen.get(run_id, run["status"]) == run["status"], f"{run_id} was shown as {seen[run_id]} before"
                seen.update({run_id: run["status"]} if run["status"] in RESTING else {})
            at_rest = len(shown) == count and all(run["status"] in RESTING for run in shown.values())
            return "rests" if at_rest and all(map(index_is_written, self.run_dirs())) else None

        try:
            return until(rested, timeout_s) == "rests"
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.told()}") from None

    def told(self) -> str:
        """Everything about the runs, for whoever has to understand a failure."""
        journals = [f"{run.name}:\n{read_journal(run).story()}" for run in self.run_dirs()]
        log = (self.path / "daemon.log").read_text().splitlines()[-40:]
        return "\n".join([f"listed: {self.listed()}", *journals, "log:", *log])

    def processes(self) -> list[int]:
        """Every living process of this instance, daemons not counted."""
        instance = self.runs / ".instance"
        if not instance.exists() or not (text := instance.read_text().strip()):
            return []
        wanted = f"ONWARD_INSTANCE={text}".encode()
        return [
            int(name)
            for name in os.listdir("/proc")
            if name.isdigit() and wanted in read_small(f"/proc/{name}/environ").split(b"\0")
        ]

    def end_processes(self) -> None:
        """End all that commands left, as the end of the machine would."""

        def none_left() -> bool:
            for pid in (found := self.processes()):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            return not found

        until(none_left)

    def close(self) -> None:
        for daemon in self.daemons:
            daemon.kill()
            daemon.wait()
        self.end_processes()


def index_is_written(run_dir: Path) -> bool:
    """Whether meta.json describes the whole journal."""
    try:
        index = json.loads((run_dir / "meta.json").read_bytes())
        return bool(index["journal"]["bytes"] == (run_dir / "journal.jsonl").stat().st_size)
    except (OSError, ValueError, KeyError):
        return False
