"""A run's records as a timeline for people. Everything foreign is escaped here."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from onward.cli.asked import INDENT, asked, in_words
from onward.cli.terminal import block, line, paint
from onward.core.records import problem_with

Json = dict[str, Any]

_LABEL_WIDTH = 12
_INDENT = " " * (10 + _LABEL_WIDTH) + "│ "

OUTCOMES = {
    "ok": ("ok", "good"),
    "error": ("error", "bad"),
    "denied": ("denied, it did not run", "warn"),
    "interrupted": ("INTERRUPTED: outcome unknown, not retried", "bad"),
    "not_started": ("never started", "warn"),
    "timeout": ("ended at its deadline: outcome unknown", "bad"),
    "cancelled": ("cancelled: outcome unknown", "warn"),
    "orphaned": ("no longer wanted", "dim"),
}
_SOURCES = {"human": "message", "system": "notice", "revival": "notice", "child": "child", "webhook": "webhook"}


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the timeline; `text` is escaped already."""

    label: str
    text: str
    tone: str = ""


@dataclass(slots=True)
class Timeline:
    """Turns records into entries; it remembers what the calls were, and the day."""

    _calls: dict[str, str] = field(default_factory=dict)
    _day: str = ""

    def entries(self, record: Json) -> list[Entry]:
        """Return what is shown of a record; nothing for those that are no news to a person.

        One that is ill-formed, by hand or by damage that no checksum tells of, is shown as such.
        """
        if (problem := problem_with(record)) is not None:
            return [_ill_formed(record, problem)]
        try:
            return _MAKERS.get(record["type"], _unknown)(self, record)
        except (AttributeError, KeyError, TypeError, ValueError) as error:  # something deeper inside is of another kind
            return [_ill_formed(record, repr(error))]

    def render(self, record: Json) -> list[str]:
        """Return the lines that show a record."""
        entries = self.entries(record)
        if not entries:
            return []
        day, clock = _local(record.get("ts"))
        lines = []
        if day != self._day:
            lines, self._day = [paint(day, "dim")], day
        for entry in entries:
            label = paint(entry.label.ljust(_LABEL_WIDTH), entry.tone)
            lines.append(f"{paint(clock, 'dim')}  {label}{entry.text}")
        return lines

    def name_call(self, call_id: str) -> str:
        return self._calls.get(call_id, call_id)

    def learn_call(self, call: Json) -> str:
        arguments = call.get("arguments")
        given = list(arguments.values()) if isinstance(arguments, dict) else [arguments]
        # A single text argument (a command, a path) says more than its JSON.
        shown = given[0] if len(given) == 1 and isinstance(given[0], str) else json.dumps(arguments, ensure_ascii=False)
        name = line(f"{call.get('call_id')} {call.get('name')}", 60)
        self._calls[str(call.get("call_id"))] = name
        return f"{name}  {line(shown)}"


def _local(stamp: Any) -> tuple[str, str]:
    try:
        moment = datetime.fromisoformat(stamp).astimezone()
    except (TypeError, ValueError):
        return "", "--:--:--"
    return moment.strftime("%Y-%m-%d"), moment.strftime("%H:%M:%S")


def _started(_: Timeline, r: Json) -> list[Entry]:
    where = f"{line(r.get('agent_name', '?'), 40)} in {line(r.get('workspace', '?'))}"
    task = block(str(r.get("task", "")), _INDENT)
    return [Entry("started", f"{where}\n{_INDENT}{task}", "strong")]


def _revived(_: Timeline, r: Json) -> list[Entry]:
    return [
        Entry("REVIVED", f"after a {line(r.get('cause'), 40)}; the run goes on (revival {r.get('attempt')})", "warn")
    ]


def _message(_: Timeline, r: Json) -> list[Entry]:
    label = _SOURCES.get(str(r.get("source")), "message")
    return [Entry(label, block(str(r.get("content", "")), _INDENT, lines=6), "dim" if label == "notice" else "strong")]


def _inference_failed(_: Timeline, r: Json) -> list[Entry]:
    again = "; it is tried again" if r.get("retryable") else ""
    return [Entry("model", f"{line(r.get('failure'), 40)}: {line(r.get('message'))}{again}", "warn")]


def _turn(_: Timeline, r: Json) -> list[Entry]:
    content = r.get("content")
    blocks = [b for b in content if isinstance(b, dict)] if isinstance(content, list) else []
    text = "\n".join(str(b["text"]) for b in blocks if b.get("type") == "text" and b.get("text"))
    return [Entry(f"turn {line(r.get('turn'), 10)}", block(text, _INDENT, lines=40, limit=20_000), "strong")]


def _batch(timeline: Timeline, r: Json) -> list[Entry]:
    return [Entry("call", timeline.learn_call(call)) for call in r.get("calls", []) if isinstance(call, dict)]


def _call_done(timeline: Timeline, r: Json) -> list[Entry]:
    said, tone = OUTCOMES.get(str(r.get("outcome")), (line(r.get("outcome"), 40), "warn"))
    if r.get("reason") == "completed-unpersisted":
        said += ", its real result was found"
    took = f" ({r['duration_s']:.1f} s)" if isinstance(r.get("duration_s"), int | float) and r["duration_s"] else ""
    result = block(str(r.get("result", "")), _INDENT, lines=6, limit=600)
    head = f"{timeline.name_call(str(r.get('call_id')))}  {said}{took}"
    return [Entry("result", f"{head}\n{_INDENT}{result}" if result else head, tone)]


def _control(label: str, tone: str) -> Callable[[Timeline, Json], list[Entry]]:
    def made(_: Timeline, r: Json) -> list[Entry]:
        needs = f"needs {line(r['needs'], 40)}: " if r.get("needs") else ""
        again = f"; tried again at {line(r['retry_at'], 40)}" if r.get("retry_at") else ""
        return [Entry(label, f"{needs}{line(r.get('reason', ''))}{again}", tone)]

    return made


def _settings(_: Timeline, r: Json) -> list[Entry]:
    limits = r.get("limits")
    shown = ", ".join(f"{name} {value}" for name, value in limits.items()) if isinstance(limits, dict) else ""
    entries = [Entry("limits", line(f"{shown} (by {r.get('by')})"), "good")] if shown else []
    if r.get("grants"):
        grants = "; ".join(json.dumps(grant, ensure_ascii=False) for grant in r["grants"])
        entries.append(Entry("allowed", line(f"{grants} (by {r.get('by')})", 2000), "good"))
    return entries


def _stage_entered(_: Timeline, r: Json) -> list[Entry]:
    again = f" (visit {r['visit']})" if r.get("visit") != 1 else ""
    return [Entry("stage", f"{line(r.get('stage'), 40)} begins{again}", "strong")]


def _stage_left(_: Timeline, r: Json) -> list[Entry]:
    return [Entry("stage", f"{line(r.get('stage'), 40)} is left", "dim")]


def _opened(_: Timeline, r: Json) -> list[Entry]:
    head, *more = (text.removeprefix(INDENT) for text in asked(r, whole=False))
    shown = [f"{line(r.get('interaction_id'), 20)} {line(r.get('kind'), 20)}: {head}", *more]
    return [Entry("QUESTION", f"\n{_INDENT}".join(shown), "warn")]


def _answered(_: Timeline, r: Json) -> list[Entry]:
    said = block(in_words(r.get("answer")), _INDENT, lines=6, limit=600)
    return [Entry("answer", f"{line(r.get('interaction_id'), 20)} by {line(r.get('by'), 60)}: {said}", "good")]


def _closed(_: Timeline, r: Json) -> list[Entry]:
    return [Entry("question", f"{line(r.get('interaction_id'), 20)} is closed: {line(r.get('reason'))}", "dim")]


def _cancel(_: Timeline, r: Json) -> list[Entry]:
    return [Entry("cancel", line(f"asked by {r.get('by')}"), "warn")]


def _draining(_: Timeline, r: Json) -> list[Entry]:
    in_flight = r.get("in_flight") or []
    left = f"; in flight: {line(', '.join(map(str, in_flight)))}" if in_flight else ""
    return [Entry("daemon", f"stopped cleanly{left}", "dim")]


def _ended(_: Timeline, r: Json) -> list[Entry]:
    status, tone = line(r.get("status"), 40), "good" if r.get("status") == "completed" else "bad"
    told = block(str(r.get("result") or ""), _INDENT, lines=40, limit=20_000)
    return [Entry(status, told or line(r.get("reason", "")), tone)]


def _silent(_: Timeline, __: Json) -> list[Entry]:
    return []


def _ill_formed(record: Json, problem: str) -> Entry:
    return Entry("record", f"{line(record['type'], 60)} is ill-formed: {line(problem)}; --json shows it", "bad")


def _unknown(_: Timeline, r: Json) -> list[Entry]:
    return [Entry("record", f"{line(r.get('type'), 60)} (of a newer Onward)", "dim")]


_MAKERS: dict[str, Callable[[Timeline, Json], list[Entry]]] = {
    "RunStarted": _started,
    "RunClaimed": _silent,
    "RunRevived": _revived,
    "MessageAdded": _message,
    "InferenceStarted": _silent,
    "InferenceFailed": _inference_failed,
    "AssistantTurn": _turn,
    "ToolBatch": _batch,
    "ToolCallStarted": _silent,
    "ToolCallDone": _call_done,
    "Checkpoint": _silent,
    "StageEntered": _stage_entered,
    "StageLeft": _stage_left,
    "InteractionOpened": _opened,
    "InteractionAnswered": _answered,
    "InteractionClosed": _closed,
    "SettingsChanged": _settings,
    "CancelRequested": _cancel,
    "RunPaused": _control("paused", "warn"),
    "RunResumed": _control("resumed", "good"),
    "RunParked": _control("parked", "warn"),
    "RunQuarantined": _control("QUARANTINED", "bad"),
    "DaemonDraining": _draining,
    "RunEnded": _ended,
}
