"""The verbs about runs: run, ps, show, logs, wait."""

import os
import sys
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from onward.cli.asked import how_to_answer
from onward.cli.asked import show as show_question
from onward.cli.client import Client
from onward.cli.follow import Follower, exit_code, stands_still
from onward.cli.holding import what_to_do
from onward.cli.live import LiveText, live_text
from onward.cli.terminal import age, block, dollars, line, out, out_json, paint, say, table
from onward.cli.timeline import OUTCOMES, Timeline
from onward.core.ids import is_run_id
from onward.core.text import clean
from onward.errors import BadRequest, NotFound

Json = dict[str, Any]

_NOT_ENDED = "active,waiting,paused,parked,quarantined,damaged"
_TONES = {"active": "good", "completed": "dim", "failed": "bad", "cancelled": "dim", "quarantined": "bad"}
_WORDS = {
    0: "completed",
    1: "ended",
    5: "stands still; `onward show {run}` says why",
    6: "stopped by a budget; `onward show {run}` says which",
}
_MAX_NAMED = 3
_SCRIPTED = "scripted/"


def start(
    client: Client,
    task: str,
    *,
    agent: str | None,
    workspace: str | None,
    model: str | None,
    on_restart: str | None,
    limits: Json | None = None,
    key: str | None,
) -> Json:
    """Start a run; asking twice (the daemon may be restarted in between) starts one."""
    if model is not None and model.startswith(_SCRIPTED):
        model = _SCRIPTED + os.path.abspath(model.removeprefix(_SCRIPTED))
    given: Json = {"agent": agent, "model": model, "on_restart": on_restart}
    if asked := {name: value for name, value in (limits or {}).items() if value is not None}:
        given["limits"] = asked
    body = {"task": clean(task), "workspace": os.path.abspath(workspace or ""), **given}
    return client.post("/v1/runs", body, key=key or os.urandom(16).hex())


def follow(client: Client, run_id: str) -> int:
    """Show a run as it goes on; return the exit code that tells how it stands in the end.

    On a terminal, what the run asks is answered in between.
    """
    from onward.cli import prompt

    follower, timeline = Follower(client, run_id), Timeline()
    while True:
        with live_text() as live:
            follower.say, follower.on_delta = live.say, live.on_delta
            _show_all(follower.until_stopped(), timeline, live)
        if not stands_still(run := follower.run()):
            continue  # somebody answered in between
        if not (waits := _waits_for(run)) or not prompt.is_possible():
            break
        if not all(prompt.ask(client, question) for question in waits):
            run = follower.run()  # some of them may be answered
            break
    code = exit_code(run)
    if run["status"] not in ("waiting", "active"):
        say(f"{run_id}: {run['status'] if code <= 1 else _WORDS[code].format(run=run_id)}")
    _say_what_waits(run)
    return code


def _waits_for(run: Json) -> list[Json]:
    """The questions whose answers let a run go on."""
    return run.get("questions") or [] if run["status"] in ("waiting", "parked", "active") else []


def _say_what_waits(run: Json) -> None:
    """Say which questions a run waits for and how to answer them."""
    for question in _waits_for(run):
        say(f"{run['run_id']} waits for an answer to {question['interaction_id']}: {line(question['prompt'])}")
        for command in how_to_answer(question):
            say(f"  {command}")


def detached(run_id: str) -> int:
    """Say that a run is no longer followed, and go."""
    say(f"\n{run_id} goes on. Follow it again: onward logs {run_id} -f")
    return 130


def ps(*, everything: bool, as_json: bool) -> int:
    """List the runs that have not ended, or all."""
    runs = list(Client().runs(status=None if everything else _NOT_ENDED))
    if as_json:
        for run in runs:
            out_json(run)
    elif runs:
        header = ("RUN", "AGENT", "STATUS", "STAGE", "TURN", "AGE", "COST", "WAITS FOR", "TASK")
        asked = _open_questions() if any(run.get("questions") for run in runs) else {}
        rows = [_row(run, asked.get(run["run_id"], [])) for run in runs]
        table(header, rows, [["", "", _TONES.get(str(run["status"]), "warn"), *[""] * 6] for run in runs])
    else:
        say("there are no runs" if everything else "no run is unfinished; `onward ps -a` lists all")
    return 0


def _open_questions() -> dict[str, list[str]]:
    """The ids of the open questions of each run."""
    found: dict[str, list[str]] = {}
    for question in Client().get("/v1/interactions")["interactions"]:
        found.setdefault(str(question["run_id"]), []).append(str(question["interaction_id"]))
    return found


def _row(run: Json, questions: list[str]) -> list[str]:
    waits = run.get("needs") or run.get("waiting_on") or run.get("error") or "-"
    if run["status"] == "quarantined":
        waits = f"revive ({run.get('error')})"
    if questions:
        more = f" and {len(questions) - _MAX_NAMED} more" if len(questions) > _MAX_NAMED else ""
        waits = f"{waits} {', '.join(questions[:_MAX_NAMED])}{more}"
    totals = run.get("totals") or {}
    return [
        line(run["run_id"], 64),
        line(run.get("agent") or "?", 32),
        line(run["status"], 16),
        line(run.get("stage") or "-", 32),
        line(run.get("turn", "?"), 8),
        age(run.get("created_at")),
        dollars(totals.get("cost_usd")),
        line(waits, 40),
        line(run.get("task") or ""),
    ]


def show(run: str, *, as_json: bool) -> int:
    """Show one run in full."""
    client = Client()
    found = client.get(f"/v1/runs/{resolve(client, run)}")
    if as_json:
        out_json(found)
        return 0
    for name, value in _facts(found):
        if value not in (None, ""):
            tone = _TONES.get(str(value), "") if name == "status" else ""
            out(f"{name:<10} {paint(line(value, 400), tone)}")
    _show_parts(found)
    return 0


def _facts(found: Json) -> list[tuple[str, Any]]:
    """What is said in a line each; None where a damaged run does not know it."""
    totals, created = found.get("totals") or {}, found.get("created_at")
    return [
        ("run", found["run_id"]),
        ("agent", found.get("agent")),
        ("stage", found.get("stage")),
        ("model", found.get("model")),
        ("status", found["status"]),
        ("why", found.get("reason") or found.get("error")),
        ("to do", what_to_do(found["run_id"], found["status"], found.get("waiting_on"))),
        ("needs", found.get("needs")),
        ("waits for", found.get("waiting_on")),
        ("wakes at", found.get("wake_at")),
        ("workspace", found.get("workspace")),
        ("started", f"{created} ({age(created)} ago) by {found.get('by')}" if created else None),
        ("progress", found.get("last_progress_at")),
        ("turns", found.get("turn")),
        ("used", _used(totals) if totals else None),
        ("limits", ", ".join(f"{name} {value}" for name, value in (found.get("limits") or {}).items())),
        ("revivals", totals.get("revivals")),
    ]


def _used(totals: Json) -> str:
    tokens = f"{totals.get('tokens_in', 0)} tokens in, {totals.get('tokens_out', 0)} out"
    active = totals.get("active_s") or 0.0
    cost = dollars(totals.get("cost_usd"))
    return f"{totals.get('tool_calls', 0)} calls, {tokens}, {cost}, {active:.0f} s active"


def _show_parts(found: Json) -> None:
    indent = " " * 11
    for damage in found.get("damage") or []:
        where = line(f"at byte {damage.get('offset')}: {damage.get('what')}")
        out(f"{'damage':<10} {paint(where, 'bad')}")
    for call in found.get("calls") or []:
        outcome, tone = OUTCOMES.get(str(call.get("outcome")), ("in flight" if call.get("started") else "not yet", ""))
        out(f"{'call':<10} {line(call.get('call_id'), 20)} {line(call.get('name'), 60)}: {paint(outcome, tone)}")
    for visit in found.get("stages") or []:
        out(f"{'visit':<10} {_visit(visit)}")
    for name in ("task", "result"):
        if found.get(name):
            out(f"{name:<10} {block(str(found[name]), indent, lines=100, limit=100_000)}")
    for question in found.get("questions") or []:
        out()
        show_question(question)


def _visit(visit: Json) -> str:
    times = f"{line(visit.get('entered'), 40)} to {line(visit.get('left') or 'now', 40)}"
    used = f"{visit.get('turns', 0)} turns, {visit.get('tokens', 0)} tokens, {dollars(visit.get('cost_usd'))}"
    return f"{line(visit.get('stage'), 40)} {visit.get('visit')}: {times}, {used}"


def logs(run: str, *, following: bool, last: int | None, after: int, as_json: bool) -> int:
    """Show a run's journal."""
    client = Client()
    run_id = resolve(client, run)
    timeline = None if as_json else Timeline()
    try:
        if last is not None:
            tail: deque[Json] = deque(maxlen=last)
            for record in client.records(run_id, after):
                after = record["seq"]
                if timeline is None or timeline.entries(record):
                    tail.append(record)
            _show_all(iter(tail), timeline)
        if following:
            with live_text(wanted=timeline is not None) as live:
                follower = Follower(client, run_id, at=after, say=live.say, on_delta=live.on_delta)
                _show_all(follower.until_ended(), timeline, live)
        elif last is None:
            _show_all(client.records(run_id, after), timeline)
    except KeyboardInterrupt:
        return detached(run_id)
    return 0


def wait(run: str, *, timeout_s: float | None, as_json: bool) -> int:
    """Wait until a run ends or stands still."""
    client = Client()
    run_id = resolve(client, run)
    found = client.get(f"/v1/runs/{run_id}")
    try:
        if not stands_still(found):
            deadline = None if timeout_s is None else time.monotonic() + timeout_s
            follower = Follower(client, run_id, at=found.get("seq", 0), say=say, deadline=deadline)
            for _ in follower.until_stopped():
                pass
            found = follower.run()
    except KeyboardInterrupt:
        return detached(run_id)
    if as_json:
        out_json(found)
    else:
        out(line(found["status"], 16))
    _say_what_waits(found)
    return exit_code(found)


def resolve(client: Client, run: str) -> str:
    """Return the run id that `run` is, or is the only one to begin with.

    Raises:
        NotFound: There is none.
        BadRequest: There are several.
    """
    if not run or not is_run_id(run.ljust(3, "0")):
        raise BadRequest(f"{run[:80]!r} is not a run id, nor the beginning of one")
    found = [str(each["run_id"]) for each in client.runs(prefix=run)]
    if run in found or len(found) == 1:
        return run if run in found else found[0]
    if not found:
        raise NotFound(f"there is no run {run!r}; `onward ps -a` lists all")
    listed = "\n  ".join(found[:10]) + (f"\n  and {len(found) - 10} more" if len(found) > 10 else "")
    raise BadRequest(f"{run!r} is the beginning of {len(found)} runs:\n  {listed}")


def _show_all(records: Iterator[Json], timeline: Timeline | None, live: LiveText | None = None) -> None:
    for record in records:
        if live is not None:
            live.clear()  # the record says it for good, or says that the answer did not come
        if timeline is None:
            out_json(record)
        else:
            for shown in timeline.render(record):
                out(shown)
        # Somebody is looking, or a pipe wants each record as it comes.
        sys.stdout.flush()
