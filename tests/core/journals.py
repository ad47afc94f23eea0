"""Journals for the tests of the core, written from the specification and not with the code under test."""

import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from onward.core import fold
from onward.core.replay import Replay, Replayer
from onward.core.state import RunState
from onward.core.step import Step, next_step

Json = dict[str, Any]

TS = "2026-11-30T19:04:05.123456Z"
TASK = "Count the é and the 🍕."
BOOT = "boot-1"


def sealed(rest: str) -> bytes:
    """Return the line (without newline) whose text after the checksum member is `rest`."""
    body = rest.encode()
    return b'{"crc":"%08x",' % zlib.crc32(b"{" + body) + body


def line(members: Json, *, seq: int, dur: int, ts: str = TS) -> bytes:
    """Return one whole line, newline included."""
    whole = {"seq": seq, "dur": dur, "ts": ts, **members}
    return sealed(json.dumps(whole, ensure_ascii=False, separators=(",", ":"))[1:]) + b"\n"


@dataclass(slots=True)
class Journal:
    """Lines in file order. Each says `dur` = the seq before it, unless `dur` is given: then that one stays."""

    lines: list[bytes] = field(default_factory=list)
    seq: int = 0
    dur: int | None = None

    def add(self, *records: Json) -> "Journal":
        for record in records:
            self.seq += 1
            dur = self.seq - 1 if self.dur is None else self.dur
            self.lines.append(line(record, seq=self.seq, dur=dur))
        return self

    def skip(self, records: int = 1) -> "Journal":
        """Leave out this many seqs."""
        self.seq += records
        return self

    def put(self, raw: bytes) -> "Journal":
        self.lines.append(raw)
        return self

    @property
    def bytes(self) -> bytes:
        return b"".join(self.lines)

    @property
    def offsets(self) -> list[int]:
        """Where each line begins, and where the file ends."""
        ends = [0]
        for text in self.lines:
            ends.append(ends[-1] + len(text))
        return ends


def replayer(blobs: Mapping[str, bytes] | None = None) -> Replayer:
    return Replayer((blobs or {}).get)


def lines_of(data: bytes) -> list[bytes]:
    """Return the lines of a file, newlines included, split on newlines only."""
    *whole, rest = data.split(b"\n")
    return [text + b"\n" for text in whole] + ([rest] if rest else [])


def feed(to: Replayer, data: bytes) -> Replay:
    for text in lines_of(data):
        to.feed(text)
    return to.finish()


def replay(journal: Journal | bytes, blobs: Mapping[str, bytes] | None = None) -> Replay:
    return feed(replayer(blobs), journal if isinstance(journal, bytes) else journal.bytes)


def fold_all(records: Iterable[Json], state: RunState | None = None) -> RunState:
    """Apply records to a state as a live run does, seqs without a gap."""
    state = RunState() if state is None else state
    for record in records:
        fold.apply(state, {"seq": state.seq + 1, "dur": state.seq, "ts": TS, **record})
    return state


def step_of(state: RunState, active_s: float = 0.0) -> Step:
    """What the run does next."""
    return next_step(state, now=TS, active_s=active_s, workers=4)


def copied(state: RunState) -> RunState:
    """Return the state as a Checkpoint carries it to another process."""
    return RunState.from_json(snapshot(state))


def snapshot(state: RunState) -> Json:
    """Return the whole state as plain JSON, that later changes do not reach."""
    members: Json = orjson.loads(orjson.dumps(state.to_json()))
    return members


def in_blob(record: Json) -> tuple[Json, str, bytes]:
    """Return the record that names a blob, the blob's name and its bytes."""
    body = json.dumps(record).encode()
    sha = hashlib.sha256(body).hexdigest()
    return {"type": record["type"], "blob": sha}, sha, body


def started(**members: Any) -> Json:
    return {
        "type": "RunStarted", "schema": 1, "run_id": "worker-1", "kind": "native", "agent": {"model": "m"},
        "agent_name": "worker", "agent_hash": "h", "by": "me", "task": TASK, "workspace": "/w", "limits": {},
        "on_restart": "resume", "version": "0.1.0", "model": "p/m",
    } | members  # fmt: skip


def claimed(boot_id: str = BOOT, epoch: int = 1) -> Json:
    return {
        "type": "RunClaimed", "machine_id": "machine", "runs_inode": 7, "boot_id": boot_id, "pid": 42,
        "start_ticks": 99, "epoch": epoch,
    }  # fmt: skip


def revived(cause: str = "crash", attempt: int = 1) -> Json:
    return {"type": "RunRevived", "attempt": attempt, "cause": cause, "charged": cause in ("crash", "reboot")}


def said(text: str, message_id: str | None = None, source: str = "human") -> Json:
    known = message_id or f"m-{text}"
    return {"type": "MessageAdded", "message_id": known, "source": source, "content": text, "by": "me", "role": "user"}


def inferring(attempt: int = 1, active_s: float = 1.5) -> Json:
    return {"type": "InferenceStarted", "attempt": attempt, "provider": "p", "model": "m", "active_s": active_s}


def failed(retry_at: str | None = None, active_s: float = 2.5) -> Json:
    line: Json = {"type": "InferenceFailed", "failure": "overloaded", "message": "529", "retryable": True}
    return line | {"active_s": active_s} | ({"retry_at": retry_at} if retry_at else {})


def text(words: str) -> Json:
    return {"type": "text", "text": words}


def use(provider_id: str, name: str = "shell", **arguments: Any) -> Json:
    return {"type": "tool_use", "id": provider_id, "name": name, "input": arguments}


def turn(number: int, *content: Json, seen: int, stop_reason: str | None = None, **members: Any) -> Json:
    asks = any(block.get("type") == "tool_use" for block in content)
    return {
        "type": "AssistantTurn", "turn": number, "seen": seen, "content": list(content),
        "stop_reason": stop_reason or ("tool_use" if asks else "end_turn"),
        "usage": {"input_tokens": 10, "output_tokens": 5}, "cost_usd": 0.25, "provider": "p", "model": "m",
        "active_s": 3.0,
    } | members  # fmt: skip


def call(call_id: str, provider_id: str | None = None, effect: str = "write", arguments: Any = None) -> Json:
    known = call_id if provider_id is None else provider_id
    return {
        "call_id": call_id, "provider_id": known, "name": "shell", "effect": effect,
        "arguments": {} if arguments is None else arguments,
    }  # fmt: skip


def batch(number: int, *calls: Json | str) -> Json:
    asked = [call(item) if isinstance(item, str) else item for item in calls]
    return {"type": "ToolBatch", "turn": number, "calls": asked}


def handed_over(call_id: str) -> Json:
    return {"type": "ToolCallStarted", "call_id": call_id}


def done(call_id: str, result: str = "done", outcome: str = "ok", settled_by: str = "tool", **members: Any) -> Json:
    return {
        "type": "ToolCallDone", "call_id": call_id, "outcome": outcome, "result": result, "is_error": outcome != "ok",
        "settled_by": settled_by, "duration_s": 0.5,
    } | members  # fmt: skip


def entered(stage: str, visit: int = 1) -> Json:
    return {"type": "StageEntered", "stage": stage, "visit": visit}


def left(stage: str, visit: int = 1, **members: Any) -> Json:
    return {"type": "StageLeft", "stage": stage, "visit": visit} | members


def opened(interaction_id: str, kind: str, binds_to: Json, ask: Json | None = None, **members: Any) -> Json:
    return {
        "type": "InteractionOpened", "interaction_id": interaction_id, "kind": kind, "prompt": "May I?", "options": [],
        "binds_to": binds_to, "ask": ask or {},
    } | members  # fmt: skip


def answered(interaction_id: str, answer: Json, by: str = "anna") -> Json:
    return {"type": "InteractionAnswered", "interaction_id": interaction_id, "answer": answer, "by": by}


def closed(interaction_id: str, reason: str = "it expired") -> Json:
    return {"type": "InteractionClosed", "interaction_id": interaction_id, "reason": reason}


def control(record_type: str, **members: Any) -> Json:
    return {"type": record_type, "by": "me", "reason": "because"} | members


def parked(needs: str = "key", **members: Any) -> Json:
    return control("RunParked", needs=needs, **members)


def ended(status: str = "completed", **members: Any) -> Json:
    return control("RunEnded", status=status, **members)


def draining(*in_flight: str) -> Json:
    return {"type": "DaemonDraining", "in_flight": list(in_flight), "active_s": 9.0}


def checkpoint(state: RunState, version: int = 1) -> Json:
    """Return the Checkpoint of the state that all lines before it make."""
    return {"type": "Checkpoint", "state": snapshot(state), "fold": version}
