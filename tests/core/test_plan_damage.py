"""The recovery plan of a run whose journal is damaged or lacks records: a human is asked before anything is written."""

import pytest

from onward.core.plan import Evidence, Found, lost_records, plan
from tests.core import journals as j
from tests.core.journals import Json, text, use
from tests.core.test_plan import HANDED_OVER, HERE, NOT_HANDED_OVER, REAL, folded

ANSWERED = [*HANDED_OVER, j.done("t1c1")]


def test_damage_after_the_newest_turn_parks_before_anything_is_written() -> None:
    """Neither settlement nor revival: the human is asked first."""
    state = j.replay(j.Journal().add(j.started(), j.claimed(), *HANDED_OVER).skip().add(j.said("x"))).state
    decided = plan(state, {"t1c1": Evidence(found=Found.RESULT, done=REAL)}, HERE)

    assert (decided.verdict, decided.needs) == ("park", "damaged")
    assert (decided.revived, decided.settlements, decided.notice) == (None, (), None)


def test_damage_that_is_healed_stops_nothing() -> None:
    """A gap before the newest turn is a warning."""
    journal = j.Journal().add(j.started(), j.claimed()).skip().add(j.said("x"), j.turn(1, use("a"), seen=4))

    assert plan(j.replay(journal).state, {}, HERE).verdict == "enter"


@pytest.mark.parametrize(
    ("records", "call_dirs", "index_seq", "lost"),
    [
        (HANDED_OVER, ["t1c1"], 5, False),
        (HANDED_OVER, [], 3, False),
        (HANDED_OVER, [], None, False),
        (HANDED_OVER, [], 6, True),
        (NOT_HANDED_OVER, ["t1c1"], 4, True),
        (HANDED_OVER, ["t1c2"], 5, True),
        (HANDED_OVER, ["t2c1"], 5, True),
        ([], ["t1c1"], 2, True),
        ([j.turn(1, use("a"), seen=2)], ["t1c1"], 3, True),
        ([*HANDED_OVER, j.turn(2, text("x"), seen=5)], ["t1c1", "t1c7"], 6, False),
        (ANSWERED, ["t1c1"], 6, False),
        ([], ["lost+found", ".nfs01", "t0c0", "t1c1.new"], 2, False),
        (HANDED_OVER, ["lost+found", "t1", "T1C1"], 5, False),
    ],
)
def test_what_the_journal_must_have_held_is_missed(
    records: list[Json], call_dirs: list[str], index_seq: int | None, lost: bool
) -> None:
    """A call's directory or a cache that is ahead proves that durable records are gone; other names prove nothing."""
    assert (lost_records(folded(*records), call_dirs, index_seq) is not None) == lost


def test_a_loss_parks_the_run() -> None:
    """Nothing is settled on a journal that is known to lack records."""
    decided = plan(folded(*HANDED_OVER), {}, HERE, loss="calls/t2c1 is there")

    assert (decided.verdict, decided.needs, decided.reason) == ("park", "damaged", "calls/t2c1 is there")
    assert (decided.revived, decided.settlements) == (None, ())
