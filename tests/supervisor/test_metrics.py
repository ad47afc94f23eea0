"""Metrics are the text that collectors read, with the names that the alert rules use."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from onward.config.places import shipped
from onward.core.conversation import CallState, Turn
from onward.core.interactions import Interaction
from onward.core.records import (
    AssistantTurn,
    InferenceFailed,
    InferenceStarted,
    InteractionAnswered,
    Record,
    RunQuarantined,
    RunRevived,
    ToolCallDone,
)
from onward.core.state import RunState
from onward.core.times import stamp
from onward.core.vocabulary import Cause, Outcome, SettledBy
from onward.supervisor.metrics import METRICS, MOST_SERIES, Meter
from onward.supervisor.observed import Observed

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def numbers(text: str) -> dict[str, float]:
    """What a collector reads: value by series."""
    return {
        series: float(value)
        for line in text.splitlines()
        if not line.startswith("#")
        for series, value in [line.rsplit(" ", 1)]
    }


def turn(**changes: Any) -> AssistantTurn:
    fields: dict[str, Any] = {
        "turn": 1,
        "seen": 1,
        "content": [],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 70, "output_tokens": 5, "cache_read_tokens": 40, "service": "x"},
        "cost_usd": 0.25,
        "provider": "anthropic",
        "model": "m-1",
        "active_s": 1.0,
    }
    return AssistantTurn(**fields | changes)


def done(call_id: str, outcome: Outcome) -> ToolCallDone:
    return ToolCallDone(
        call_id=call_id, outcome=outcome, result="", is_error=False, settled_by=SettledBy.TOOL, duration_s=0.1
    )


def counted(*records: Record) -> dict[str, float]:
    calls = [
        CallState(call_id=f"t1c{n}", provider_id="p", name=name, arguments={}, effect="read")
        for n, name in ((1, "shell"), (2, 'made "up"\n'))
    ]
    state = RunState(agent={"tools": ["shell"]})
    state.conversation.turn = Turn(turn=1, seen=1, content=[], stop_reason="tool_use", calls=calls)
    asked = stamp(NOW - timedelta(seconds=90))
    state.interactions["q1"] = Interaction(
        interaction_id="q1", kind="ask", prompt="?", options=[], binds_to={}, ask={}, opened_seq=1, asked_at=asked
    )
    meter = Meter()
    observed = Observed(meter, lambda: NOW)
    for record in records:
        observed(state, record)
    return numbers(meter.render())


def test_what_records_count_for() -> None:
    started = InferenceStarted(attempt=1, provider="anthropic", model="m-1", active_s=0.0)
    failed = InferenceFailed(failure="rate_limited", message="", retryable=True, active_s=0.0)
    found = counted(
        *(started, failed, started, turn()),
        *(done("t1c1", Outcome.OK), done("t1c1", Outcome.OK), done("t1c2", Outcome.ERROR)),
        RunRevived(attempt=1, cause=Cause.CRASH, charged=True),
        RunQuarantined(by="daemon", reason="x"),
        InteractionAnswered(interaction_id="q1", answer={}, by="me"),
    )
    assert {series: value for series, value in found.items() if value and "bucket" not in series} == {
        'onward_llm_requests_total{provider="anthropic",outcome="rate_limited"}': 1,
        'onward_llm_requests_total{provider="anthropic",outcome="ok"}': 1,
        'onward_llm_tokens_total{provider="anthropic",model="m-1",type="input"}': 70,
        'onward_llm_tokens_total{provider="anthropic",model="m-1",type="output"}': 5,
        'onward_llm_tokens_total{provider="anthropic",model="m-1",type="cache_read"}': 40,
        "onward_llm_cost_usd_total": 0.25,
        'onward_tool_calls_total{tool="shell",outcome="ok"}': 2,
        'onward_tool_calls_total{tool="unknown",outcome="error"}': 1,
        'onward_run_revivals_total{cause="crash"}': 1,
        "onward_runs_quarantined_total": 1,
        "onward_question_wait_seconds_sum": 90,
        "onward_question_wait_seconds_count": 1,
    }
    assert found['onward_question_wait_seconds_bucket{le="60"}'] == 0
    assert found['onward_question_wait_seconds_bucket{le="300"}'] == 1
    assert found['onward_question_wait_seconds_bucket{le="+Inf"}'] == 1


def test_labels_cannot_break_out_of_their_line() -> None:
    meter = Meter()
    meter.add("onward_llm_requests_total", provider='a"b\\c\nd', outcome="ok")
    assert 'onward_llm_requests_total{provider="a\\"b\\\\c\\nd",outcome="ok"} 1\n' in meter.render()


def test_series_are_bounded() -> None:
    meter = Meter()
    for n in range(MOST_SERIES + 20):
        meter.add("onward_tool_calls_total", tool=f"mcp__{n}", outcome="ok")
    found = [series for series in numbers(meter.render()) if series.startswith("onward_tool_calls_total")]
    assert len(found) == MOST_SERIES + 1
    assert numbers(meter.render())['onward_tool_calls_total{tool="other",outcome="other"}'] == 20


@pytest.mark.parametrize("file", sorted(shipped("systemd").glob("*.yaml")), ids=lambda file: file.name)
def test_every_name_in_an_alert_rule_exists(file: Path) -> None:
    names = set(re.findall(r"\bonward_[a-z0-9_]+", "\n".join(re.findall(r"expr:.*(?:\n {10}.*)*", file.read_text()))))
    assert len(names) > 5
    for name in names:
        bare = re.sub(r"_(bucket|sum|count)$", "", name)
        metric = METRICS.get(bare) or METRICS.get(name)
        assert metric is not None, f"{file.name}: {name} is not a metric"
        assert (metric.kind == "histogram") == (name != bare), name


def test_every_label_in_an_alert_rule_exists() -> None:
    rules = "".join(file.read_text() for file in shipped("systemd").glob("*.yaml"))
    for name, selector in re.findall(r"\b(onward_[a-z0-9_]+)\{([^}]*)\}", rules):
        assert set(re.findall(r"(\w+)[!=~]+\"", selector)) <= set(METRICS[name].labels)
