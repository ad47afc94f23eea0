"""Reading a journal without the code under test: a second opinion on every line."""

import hashlib
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Journal:
    """The records of a run in order, blobs put in their place, and what is wrong with the file."""

    records: list[Json]
    problems: list[str]

    def of(self, *types: str) -> list[Json]:
        return [record for record in self.records if record["type"] in types]

    def calls(self) -> dict[str, Json]:
        """Every call of every batch, by id."""
        return {call["call_id"]: call for batch in self.of("ToolBatch") for call in batch["calls"]}

    def settlements(self) -> dict[str, list[Json]]:
        found: dict[str, list[Json]] = {call_id: [] for call_id in self.calls()}
        for done in self.of("ToolCallDone"):
            found.setdefault(done["call_id"], []).append(done)
        return found

    def counts(self) -> Counter[str]:
        return Counter(record["type"] for record in self.records)

    def story(self) -> str:
        """One line for each record, for whoever has to understand a failure."""
        return "\n".join(f"  {record['seq']:4} {record['type']:16} {_about(record)}" for record in self.records)


def read_journal(run_dir: Path) -> Journal:
    """Read a journal of which every byte has to be right."""
    records, problems = [], []
    data = (run_dir / "journal.jsonl").read_bytes()
    *lines, rest = data.split(b"\n")
    if rest:
        problems.append(f"the journal ends in {len(rest)} bytes without a newline")
    for expected, line in enumerate(lines, 1):
        try:
            record = _read_line(line, run_dir)
        except (ValueError, OSError, KeyError) as error:
            problems.append(f"line {expected}: {error!r}: {line[:100]!r}")
            continue
        if record["seq"] != expected:
            problems.append(f"line {expected} has seq {record['seq']}")
        records.append(record)
    return Journal(records, problems)


def _read_line(line: bytes, run_dir: Path) -> Json:
    crc, rest = line[8:16], line[18:]
    if not line.startswith(b'{"crc":"') or int(crc, 16) != crc32(b"{" + rest):
        raise ValueError("wrong checksum")
    record: Json = json.loads(line)
    if blob := record.get("blob"):
        body = (run_dir / "blobs" / blob).read_bytes()
        if hashlib.sha256(body).hexdigest() != blob:
            raise ValueError(f"the blob {blob} holds something else")
        record = {**json.loads(body), **record}
    return record


def _about(record: Json) -> str:
    names = (
        "turn",
        "call_id",
        "outcome",
        "settled_by",
        "reason",
        "attempt",
        "cause",
        "source",
        "status",
        "needs",
        "pid",
    )
    told = [f"{name}={str(record[name])[:60]}" for name in names if name in record]
    calls = [f"{call['call_id']}:{call['name']}" for call in record.get("calls", [])]
    return " ".join(told + calls)
