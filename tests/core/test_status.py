"""The one table of what may follow what."""

import pytest

from onward.core.status import TERMINAL, Status, after
from onward.errors import InternalError

LIVE = {"active", "paused", "parked", "quarantined"}
ENDED = {"completed", "failed", "cancelled"}
JOURNALED = sorted(LIVE | ENDED)

LEADS_TO = {
    "RunPaused": "paused",
    "RunResumed": "active",
    "RunParked": "parked",
    "RunQuarantined": "quarantined",
    "RunRevived": "active",
    "RunRevived(manual)": "active",
}


def test_terminal_statuses_are_those_of_the_design() -> None:
    """completed, failed and cancelled are the ends of a life."""
    assert {str(status) for status in TERMINAL} == ENDED


@pytest.mark.parametrize("record_type", LEADS_TO)
@pytest.mark.parametrize("status", JOURNALED)
def test_a_control_record_leads_from_live_statuses_only(record_type: str, status: str) -> None:
    """From an ended run nothing leads on, but a human's revive from failed; only an active run can be interrupted."""
    may_follow = {"RunRevived": {"active"}, "RunRevived(manual)": LIVE | {"failed"}}.get(record_type, LIVE)
    if status in may_follow:
        assert after(record_type, Status(status)) == LEADS_TO[record_type]
    else:
        with pytest.raises(InternalError):
            after(record_type, Status(status))


@pytest.mark.parametrize("status", JOURNALED)
@pytest.mark.parametrize("end", sorted(ENDED))
def test_an_end_comes_once(status: str, end: str) -> None:
    """A live run ends as the record names it; an ended one does not end again."""
    if status in LIVE:
        assert after("RunEnded", Status(status), end) == end
    else:
        with pytest.raises(InternalError):
            after("RunEnded", Status(status), end)


@pytest.mark.parametrize("end", ["active", "waiting", "paused", "parked", "quarantined", "damaged"])
def test_an_end_is_terminal(end: str) -> None:
    """A run cannot end as something that goes on."""
    with pytest.raises(InternalError):
        after("RunEnded", Status.ACTIVE, end)
