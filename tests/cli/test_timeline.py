"""The timeline shows whatever stands in a journal; what makes no sense is shown as that."""

from typing import Any

import orjson
import pytest

from onward.cli.timeline import Timeline
from onward.core import records
from onward.core.records import Json, Record
from onward.core.vocabulary import Needs, Outcome, SettledBy, Source
from tests.core.test_index_form import spoiled

ASK = {"tool": "shell", "arguments": {"command": "ls"}, "why": "a rule", "options": ["a"], "fields": [{"name": "n"}]}
CALL = {"call_id": "t1c1", "provider_id": "", "name": "shell", "arguments": {"command": "ls"}, "effect": "unknown"}
WHOLE: list[Record] = [
    records.RunStarted(
        run_id="coder-1", kind="native", agent={}, agent_name="coder", agent_hash="h", task="do it", workspace="/w",
        limits={"turns": 5}, by="me", on_restart="resume", version="0",
    ),
    records.MessageAdded(message_id="m1", source=Source.HUMAN, content="hello", by="me"),
    records.InferenceFailed(failure="timeout", message="slow", retryable=True, model="m", active_s=1.0),
    records.AssistantTurn(
        turn=1, seen=1, content=[{"type": "text", "text": "x"}], stop_reason="end_turn", usage={}, cost_usd=0.0,
        provider="p", model="m", active_s=0.0,
    ),
    records.ToolBatch(turn=1, calls=[CALL]),
    records.ToolCallStarted(call_id="t1c1"),
    records.ToolCallDone(
        call_id="t1c1", outcome=Outcome.OK, result="x", is_error=False, settled_by=SettledBy.TOOL, duration_s=0.5
    ),
    records.StageEntered(stage="plan", visit=2),
    records.InteractionOpened(
        interaction_id="q1", kind="permission", prompt="May it?", options=["approve"], binds_to={}, ask=ASK
    ),
    records.InteractionOpened(interaction_id="q1", kind="ask", prompt="Which?", options=[], binds_to={}, ask=ASK),
    records.InteractionAnswered(interaction_id="q1", answer={"decision": "deny", "reason": "no"}, by="me"),
    records.InteractionAnswered(interaction_id="q1", answer={"value": {"n": 1}}, by="me"),
    records.InteractionClosed(interaction_id="q1", reason="it expired"),
    records.SettingsChanged(by="me", limits={"turns": 5}, grants=[{"tool": "shell"}]),
    records.CancelRequested(by="me"),
    records.RunParked(by="daemon", reason="no key", needs=Needs.KEY, retry_at="2026-01-01T00:00:00.000000Z"),
    records.DaemonDraining(in_flight=["t1c1"], active_s=1.0),
    records.RunEnded(status="completed", reason="finished", result="done"),
]  # fmt: skip


def line_of(record: Record) -> Json:
    line: Json = orjson.loads(orjson.dumps(record.to_json()))
    return {**line, "seq": 7, "ts": "2026-01-01T00:00:00.000000Z"}


@pytest.mark.parametrize("record", WHOLE, ids=lambda record: type(record).__name__)
def test_a_record_of_which_anything_is_missing_or_of_another_kind_is_shown_all_the_same(record: Record) -> None:
    """What the fold counts as damage is not passed over, and ends nobody's `onward logs`."""
    line = line_of(record)
    assert "ill-formed" not in "".join(Timeline().render(line))
    fewer = [{name: value for name, value in line.items() if name != missing} for missing in line if missing != "type"]
    for bad in [*fewer, *({**each, "type": line["type"]} for each in spoiled(line) if isinstance(each, dict))]:
        shown = Timeline().render(bad)
        if records.problem_with(bad) is not None:
            assert f"{line['type']} is ill-formed" in "".join(shown)


@pytest.mark.parametrize("kind", sorted(records.RECORD_TYPES))
def test_a_record_that_has_nothing_but_its_type_is_shown_as_ill_formed(kind: str) -> None:
    shown = Timeline().render({"seq": 3, "type": kind})
    assert not records.problem_with({"type": kind}) or f"{kind} is ill-formed" in "".join(shown)


def test_what_is_said_of_an_ill_formed_record_is_escaped() -> None:
    line: dict[str, Any] = {"seq": 1, "type": "ToolBatch", "calls": "\x1b[2J", "turn": {"\x1b": 1}}
    assert "\x1b[2J" not in "".join(Timeline().render(line))
