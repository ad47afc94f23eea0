"""What must hold once everything has come to its end, whatever happened on the way.

The journals are compared with the world (the file of side effects, processes, leftovers), with the script, with what
the daemon says of them, and with every request that a model was sent.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from onward.core.index import index_of
from onward.processes.launcher_kernel import read_small
from onward.store import disk, rundir
from tests.crash.daemon import REQUESTS
from tests.crash.harness import Home
from tests.crash.journals import Journal, read_journal
from tests.crash.scenario import effects
from tests.support import until

Json = dict[str, Any]

_BUMPED = re.compile(r"echo ([\w.-]+) >> ")
_COUNTS = {"ok": (1,), "not_started": (0,), "denied": (0,), "could not start": (0,), "interrupted": (0, 1)}
"""How often an effect can have happened, by what the journal says of its call."""


def problems_with(home: Home, scripts: dict[str, Path], *, forgotten: Sequence[str] = ()) -> list[str]:
    """Return everything that is wrong with the runs of `scripts` (by idempotency key), all of which have ended.

    `forgotten` are effects that happened, but that no journal can know.
    """
    by_key: dict[str, list[Path]] = {key: [] for key in scripts}
    for run_dir in home.run_dirs():
        by_key.setdefault(read_journal(run_dir).records[0].get("idempotency_key", "?"), []).append(run_dir)
    problems = [f"{len(dirs)} runs have the key {key!r}" for key, dirs in by_key.items() if len(dirs) != 1]
    listed = home.listed()
    happened = Counter(effects(home.path)) - Counter(forgotten)
    for key, script in scripts.items():
        for run_dir in by_key[key]:
            journal = read_journal(run_dir)
            found = [*journal.problems, *run_problems(journal, script), *effect_problems(journal, happened)]
            found += _status_problems(run_dir, listed.get(run_dir.name))
            found += _request_problems(home.path / REQUESTS, script, journal)
            if found:
                found.append(f"the journal of {key}:\n{journal.story()}")
            problems += found
    if happened:
        problems.append(f"effects that no journal knows: {dict(happened)}")
    return problems + list(_leftovers(home))


def run_problems(journal: Journal, script: Path) -> Iterator[str]:
    """None lost, nothing twice: the script's turns in order, each call settled once, the run ended once."""
    turns = json.loads(script.read_bytes())["turns"]
    answered = [record["turn"] for record in journal.of("AssistantTurn")]
    if answered != list(range(1, len(answered) + 1)):
        yield f"turns are {answered}"
    expected = sum(turn.get("repeat", 1) for turn in turns)
    finish = [done for done in journal.of("ToolCallDone") if done.get("ends_run") and done["outcome"] == "ok"]
    if len(answered) != expected + (0 if finish else 1):
        yield f"{len(answered)} turns were taken of a script of {expected}, finish was {'' if finish else 'not '}ok"
    asked = [
        [block["name"] for block in turn["content"] if block["type"] == "tool_use"]
        for turn in journal.of("AssistantTurn")
    ]
    batches = [[call["name"] for call in batch["calls"]] for batch in journal.of("ToolBatch")]
    if batches != [names for names in asked if names]:
        yield f"turns asked for {asked}, batches hold {batches}"
    started = Counter(record["call_id"] for record in journal.of("ToolCallStarted"))
    for call_id, settled in journal.settlements().items():
        if len(settled) != 1:
            yield f"call {call_id} is settled {len(settled)} times"
        if started[call_id] > 1:
            yield f"call {call_id} was handed over {started[call_id]} times"
        if not started[call_id] and any(done["settled_by"] == "tool" for done in settled):
            yield f"call {call_id} has a result, but was never handed over"
    if [record["type"] for record in journal.records[-1:]] != ["RunEnded"] or journal.counts()["RunEnded"] != 1:
        yield f"the journal does not end in its one RunEnded but in {journal.records[-1]}"
    elif journal.records[-1]["status"] != "completed":
        yield f"the run ended as {journal.records[-1]['status']}"
    yield from _revival_problems(journal)


def _revival_problems(journal: Journal) -> Iterator[str]:
    """One notice per interruption, no second one before the model has thought, and one for whatever was cut off."""
    told = owed = False
    for record in journal.records:
        if record["type"] == "MessageAdded" and record["source"] == "revival":
            if told:
                yield f"a second notice of one interruption (seq {record['seq']})"
            told, owed = True, False
        elif record["type"] == "ToolCallDone" and record["settled_by"] == "recovery":
            owed = owed or not told
        elif record["type"] == "AssistantTurn":
            if owed:
                yield f"turn {record['turn']} was taken without a notice of the interruption before it"
            told = owed = False
    revived = [record["attempt"] for record in journal.of("RunRevived")]
    if revived != list(range(1, len(revived) + 1)):
        yield f"revivals are counted {revived}"


def effect_problems(journal: Journal, happened: Counter[str]) -> Iterator[str]:
    """Compare the side effects with what the journal says; what is accounted for is taken out of `happened`."""
    settlements = journal.settlements()
    edited = {done["call_id"]: done["arguments"] for done in journal.of("ToolCallStarted") if done.get("arguments")}
    for call_id, call in journal.calls().items():
        for key in bumped({**call, "arguments": edited.get(call_id, call["arguments"])}):
            count, said = happened.pop(key, 0), _said(settlements[call_id])
            if count not in _COUNTS.get(said, ()):
                yield f"the effect {key!r} of {call_id} happened {count} times, the journal says {said}"


def bumped(call: Json) -> list[str]:
    """Return the effects that a call has."""
    return _BUMPED.findall(call["arguments"].get("command", ""))


def _said(settled: list[Json]) -> str:
    if not settled:
        return "nothing"
    could_not_start = settled[0]["result"].startswith("[error] the call could not be started, so nothing was done")
    return "could not start" if could_not_start else str(settled[0]["outcome"])


def _status_problems(run_dir: Path, listed: Json | None) -> Iterator[str]:
    """What the daemon and meta.json say is what a fresh fold of the journal says."""
    folded = json.loads(json.dumps(index_of(fold(run_dir))))
    written = json.loads((run_dir / "meta.json").read_bytes())
    position = written.pop("journal")
    size = (run_dir / "journal.jsonl").stat().st_size
    if position["bytes"] != size:
        yield f"meta.json describes {position['bytes']} of {size} bytes"
    if written != folded:
        yield f"meta.json says {_difference(written, folded)}"
    if listed is None or {name: listed.get(name) for name in folded} != folded:
        yield f"GET /v1/runs says {_difference(listed or {}, folded)}"


def fold(run_dir: Path) -> Any:
    """Fold a journal afresh, from its first line."""
    runs_fd = disk.open_dir(str(run_dir.parent))
    try:
        return rundir.read(runs_fd, run_dir.name).state
    finally:
        os.close(runs_fd)


def _difference(said: Json, folded: Json) -> str:
    return ", ".join(
        f"{name} = {said.get(name)!r} (folded: {value!r})" for name, value in folded.items() if said.get(name) != value
    )


def _request_problems(file: Path, script: Path, journal: Journal) -> Iterator[str]:
    """Every request is one that a strict provider takes, and what a turn was told stands above it for ever."""
    requests = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    mine = [request for request in requests if request["model"] == str(script)]
    for request in mine:
        yield from (f"request after turn {request['turns']}: {problem}" for problem in request["problems"])
    newest = {request["turns"]: request for request in mine}
    in_order = [newest[turns] for turns in sorted(newest)]
    for earlier, later in pairwise(in_order):
        count = earlier["count"]
        if later["digests"].get(str(count)) != earlier["digests"][str(count)]:
            yield f"the request after turn {later['turns']} begins otherwise than the one after turn {earlier['turns']}"
    if len(newest) < journal.counts()["AssistantTurn"]:
        yield f"{journal.counts()['AssistantTurn']} turns, but requests only after {sorted(newest)}"


def _leftovers(home: Home) -> Iterator[str]:
    """What is still there after a moment: a run that has ended is let go right after it is shown so."""
    for found in (leftover_files, leftover_commands):
        try:
            until(partial(_is_gone, found, home), 5.0)
        except AssertionError:
            yield f"left over: {found(home)}"


def _is_gone(found: Callable[[Home], list[str]], home: Home) -> bool:
    return not found(home)


def leftover_files(home: Home) -> list[str]:
    # A power cut may undo the removal of evidence, and of a run that has ended nobody looks at it again.
    patterns = ["*.tmp", ".new-*", ".gone-*", *([] if home.noted else ["calls/*"])]
    return [str(path.relative_to(home.path)) for pattern in patterns for path in home.runs.rglob(pattern)]


def leftover_commands(home: Home) -> list[str]:
    return [read_small(f"/proc/{pid}/cmdline").decode() for pid in home.processes()]
