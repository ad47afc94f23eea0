"""The demo tells the truth: it says so when its promise was not kept."""

from typing import Any

import pytest

from onward.cli.demo_story import EXPECTED, FOUND, INTERRUPTED, NEVER, RAN, Story

EFFECTS = "one\ntwo\nthree\nfour\nfive\n"


def story(fates: dict[str, str]) -> Story:
    told, records = Story(), []
    for call_id, fate in fates.items():
        records.append({"type": "ToolBatch", "calls": [{"call_id": call_id, "name": "shell", "arguments": {}}]})
        if fate != NEVER:
            records.append({"type": "ToolCallStarted", "call_id": call_id})
        if fate in (FOUND, INTERRUPTED):
            records.append({"type": "RunClaimed"})
        outcome = {NEVER: "not_started", INTERRUPTED: "interrupted"}.get(fate, "ok")
        records.append({"type": "ToolCallDone", "call_id": call_id, "outcome": outcome})
    for seq, record in enumerate(records, 1):
        told.add({"seq": seq, **record})
    return told


def test_the_journal_tells_each_calls_fate() -> None:
    assert {call_id: fate for call_id, _, fate in story(EXPECTED).fates()} == EXPECTED
    assert story(EXPECTED).wrong("completed", EFFECTS) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"status": "failed"}, "the run is failed"),
        ({"effects": EFFECTS + "five\n"}, "effects.txt holds"),
        ({"fates": {**EXPECTED, "t2c2": RAN}}, "the calls' fates"),
    ],
)
def test_whatever_is_not_as_promised_is_said(changes: dict[str, Any], said: str) -> None:
    told = story(changes.get("fates", EXPECTED))
    wrong = told.wrong(changes.get("status", "completed"), changes.get("effects", EFFECTS))
    assert [said in each for each in wrong] == [True]


def test_a_lost_record_and_a_second_result_are_noticed() -> None:
    told = story(EXPECTED)
    told.add({"seq": told.seqs[-1] + 2, "type": "ToolCallDone", "call_id": "t1c1", "outcome": "ok"})
    assert len(told.wrong("completed", EFFECTS)) == 2
