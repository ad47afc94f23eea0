"""What must hold of the questions of a run that has ended, whatever happened on the way."""

from collections.abc import Iterator
from typing import Any

from tests.crash.journals import Journal

Json = dict[str, Any]


def question_problems(journal: Journal) -> list[str]:
    """Return what is wrong: asked or answered twice, left open, thought past, or carried out otherwise."""
    return [*_dialogue_problems(journal), *_permission_problems(journal)]


def _dialogue_problems(journal: Journal) -> Iterator[str]:
    waiting: dict[str, Json] = {}
    answered: set[str] = set()
    for record in journal.records:
        which = record.get("interaction_id", "")
        match record["type"]:
            case "InteractionOpened":
                if record["binds_to"] in [question["binds_to"] for question in waiting.values()]:
                    yield f"{which} is asked twice: {record['binds_to']}"
                waiting[which] = record
            case "InteractionAnswered":
                if which in answered:
                    yield f"{which} was answered twice"
                answered.add(which)
                waiting.pop(which, None)
            case "InteractionClosed":
                waiting.pop(which, None)
            case "InferenceStarted" if waiting:
                yield f"a model was asked while {list(waiting)} waited (seq {record['seq']})"
    if waiting:
        yield f"{list(waiting)} were never answered"


def _permission_problems(journal: Journal) -> Iterator[str]:
    """What was approved was handed over once, with what was approved; nothing else of what was asked about was."""
    answers = {record["interaction_id"]: record["answer"] for record in journal.of("InteractionAnswered")}
    started = {record["call_id"]: record for record in journal.of("ToolCallStarted")}
    for asked in journal.of("InteractionOpened"):
        if asked["kind"] != "permission":
            continue
        answer, call_id = answers[asked["interaction_id"]], asked["binds_to"]["call_id"]
        if (call_id in started) != (answer["decision"] == "approve"):
            yield f"{call_id} was answered with {answer}, and was handed over: {call_id in started}"
        elif call_id in started and started[call_id].get("arguments") != answer.get("arguments"):
            yield f"{call_id} ran with {started[call_id].get('arguments')}, the answer was {answer}"
