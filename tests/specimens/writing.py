"""How specimens are written: journals with plausible times, evidence of calls, indexes."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from onward.core.gates import look
from onward.core.index import index_of
from onward.core.state import RunState
from tests.core import journals as j
from tests.core.journals import Json

BOOT, OTHER_BOOT = "5bec17e2-0000-4000-8000-000000000001", "5bec17e2-0000-4000-8000-000000000002"
BEGAN = datetime(2026, 11, 20, 9, 0, tzinfo=UTC)
TOOLS = ["shell", "read_file", "write_file", "edit_file", "list_files", "search_files", "ask_user", "finish"]
LIMITS: Json = {
    "turns": 200,
    "tool_calls": 1000,
    "call_deadline_s": 600.0,
    "max_revivals": 50,
    "max_stalled_revivals": 3,
}
AGENT: Json = {
    "kind": "native", "description": "A specimen", "model": "scripted/specimen", "fallback": [],
    "system_prompt": "You are a specimen.", "tools": TOOLS, "mcp": {}, "rerun_reads": False, "on_restart": "resume",
    "sandbox": "none", "permissions": {}, "stages": [], "question_expires_s": None, "limits": LIMITS,
}  # fmt: skip


@dataclass(slots=True)
class Writer:
    """The journal of one run and what stands beside it; each record half a second after the one before."""

    name: str
    agent: Json = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    lines: list[bytes] = field(default_factory=list)
    seq: int = 0

    def start(self, task: str = "Tidy the notes.", **members: Any) -> "Writer":
        agent = AGENT | self.agent
        pinned = {
            "run_id": self.name, "agent": agent, "agent_name": "specimen", "task": task, "workspace": "/tmp",
            "agent_hash": hashlib.sha256(json.dumps(agent).encode()).hexdigest(), "limits": LIMITS, "by": "anna",
            "model": "scripted/specimen", "depth": 0,
        }  # fmt: skip
        return self.add(j.started(**pinned | members))

    def add(self, *records: Json, dur: int | None = None) -> "Writer":
        for record in records:
            self.seq += 1
            at = (BEGAN + timedelta(seconds=self.seq / 2)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            durable = self.seq - 1 if dur is None else dur
            self.lines.append(j.line(record, seq=self.seq, dur=durable, ts=at))
        return self

    def claim(self, epoch: int = 1, boot_id: str = BOOT) -> "Writer":
        return self.add(j.claimed(boot_id, epoch))

    def infer(self) -> "Writer":
        return self.add(j.inferring())

    def think(self, number: int, *content: Json, calls: "tuple[Json, ...]" = (), **members: Any) -> "Writer":
        """Write a turn, with its batch where it asks for calls."""
        self.add(j.turn(number, *content, *map(_use, calls), seen=self.seq, **members))
        return self.add(j.batch(number, *calls)) if calls else self

    def begun(self, *calls: Json, number: int = 1) -> "Writer":
        """A run at work whose newest turn asked for these calls."""
        return self.start().claim().infer().think(number, j.text("I look first."), calls=calls)

    def ask(self) -> "Writer":
        """Open the questions that stand before the calls of the newest batch."""
        return self.add(*(record.to_json() for record in look(self.state).records))

    @property
    def state(self) -> RunState:
        return j.replay(b"".join(self.lines)).state

    def tail(self, raw: bytes) -> "Writer":
        self.lines.append(raw)
        return self

    def cut(self, length: int) -> "Writer":
        """Lose the end of the last line."""
        self.lines[-1] = self.lines[-1][:-length]
        return self

    def lose(self, position: int, raw: bytes = b"") -> "Writer":
        """Put `raw` in place of a line: nothing, or what a disk left."""
        self.lines[position] = raw
        return self

    def beside(self, name: str, content: "bytes | Json") -> "Writer":
        self.files[name] = content if isinstance(content, bytes) else (json.dumps(content) + "\n").encode()
        return self

    def identity(self, call_id: str, boot_id: str = BOOT) -> "Writer":
        """A launcher that began this call, and is gone."""
        call = {"ONWARD_INSTANCE": "5bec17e2" * 4, "ONWARD_RUN_ID": self.name, "ONWARD_CALL_ID": call_id}
        known = {"pid": 4194300, "start_ticks": 99, "boot_id": boot_id, "pid_ns": 1, "call": call}
        return self.beside(f"calls/{call_id}/identity", {"protocol": 1, **known})

    def printed(self, call_id: str, text: str) -> "Writer":
        return self.beside(f"calls/{call_id}/stdout", text.encode()).beside(f"calls/{call_id}/stderr", b"")

    def exit(self, call_id: str, code: int, length: int, ended_by: str = "itself") -> "Writer":
        streams = {"stdout": {"length": length, "dropped": 0}, "stderr": {"length": 0, "dropped": 0}}
        return self.beside(
            f"calls/{call_id}/exit", {"protocol": 1, "code": code, "ended_by": ended_by, "duration_s": 61.5, **streams}
        )

    def index(self, **position: int) -> "Writer":
        """The meta.json of the journal as it stands; `position` says otherwise what it describes."""
        at = {"seq": self.seq, "bytes": sum(map(len, self.lines)), "checkpoint_offset": None, **position}
        return self.beside("meta.json", {**index_of(self.state), "journal": at})

    def written(self) -> Mapping[str, bytes]:
        return {"journal.jsonl": b"".join(self.lines), **self.files}


def _use(call: Json) -> Json:
    arguments = call["arguments"] if isinstance(call["arguments"], dict) else {}
    return {"type": "tool_use", "id": call["provider_id"], "name": call["name"], "input": arguments}


def shell(call_id: str, command: str, provider_id: str | None = None) -> Json:
    return j.call(call_id, provider_id or f"call_{call_id}", "unknown", {"command": command})


def write(call_id: str, path: str, content: str) -> Json:
    known = j.call(call_id, f"call_{call_id}", "idempotent", {"path": path, "content": content})
    return known | {"name": "write_file"}


def other(call_id: str, name: str, **arguments: Any) -> Json:
    return j.call(call_id, f"call_{call_id}", "read", arguments) | {"name": name}


NOTICE = (
    "[background event] Automated notification from the system, not the user speaking. The previous session ended "
    "while this run was working, and the run has been resumed. Everything above is its own conversation, up to the "
    "moment it stopped. Work that was not finished is still unfinished."
)


def told(attempt: int) -> Json:
    return j.said(NOTICE, f"revival-{attempt}", "revival") | {"by": "daemon"}
