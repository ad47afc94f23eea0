"""What people do to a run: which records an act is, none when it was done before, and what a state refuses."""

from collections.abc import Callable

import pytest

from onward.core import acts
from onward.core.records import Record
from onward.core.state import RunState
from onward.errors import Conflict
from tests.core import journals as j
from tests.core.journals import Json

AT_WORK = [j.started(limits={"turns": 5}), j.claimed()]
PAUSED: Json = {"type": "RunPaused", "by": "anna", "reason": "wait"}
CANCELLED: Json = {"type": "CancelRequested", "by": "anna"}
SAID: Json = {"type": "MessageAdded", "message_id": "m1", "source": "human", "content": "go", "by": "anna"}
PUT_ASIDE: Json = {"type": "RunQuarantined", "by": "daemon", "reason": "an error"}

Act = Callable[[RunState], list[Record]]


def say(state: RunState) -> list[Record]:
    return acts.said(state, "go", message_id="m1", by="anna")


def pause(state: RunState) -> list[Record]:
    return acts.paused(state, by="anna", reason="")


def resume(state: RunState) -> list[Record]:
    return acts.resumed(state, by="anna", add={})


def extend(state: RunState) -> list[Record]:
    return acts.resumed(state, by="anna", add={"turns": 3})


def cancel(state: RunState) -> list[Record]:
    return acts.cancelled(state, by="anna")


@pytest.mark.parametrize(
    ("before", "act", "expected"),
    [
        ([], say, ["MessageAdded"]),
        ([SAID], say, []),
        ([], pause, ["RunPaused"]),
        ([PAUSED], pause, []),
        ([], resume, []),
        ([PAUSED], resume, ["RunResumed"]),
        ([], extend, ["SettingsChanged"]),
        ([PAUSED], extend, ["SettingsChanged", "RunResumed"]),
        ([], cancel, ["CancelRequested"]),
        ([PUT_ASIDE], cancel, ["CancelRequested"]),
        ([CANCELLED], cancel, []),
    ],
)
def test_an_act_is_written_once(before: list[Json], act: Act, expected: list[str]) -> None:
    records = act(j.fold_all([*AT_WORK, *before]))

    assert [record.to_json()["type"] for record in records] == expected


@pytest.mark.parametrize("act", [say, pause, resume, extend])
def test_what_was_cancelled_is_over_for_every_other_act(act: Act) -> None:
    with pytest.raises(Conflict, match="a cancel was asked"):
        act(j.fold_all([*AT_WORK, CANCELLED]))


def test_resuming_mends_no_quarantine() -> None:
    with pytest.raises(Conflict, match="does not mend that"):
        resume(j.fold_all([*AT_WORK, PUT_ASIDE]))


def test_a_limit_that_was_not_set_cannot_be_raised() -> None:
    with pytest.raises(Conflict, match="no limit 'tokens'"):
        acts.resumed(j.fold_all(AT_WORK), by="anna", add={"tokens": 1})
