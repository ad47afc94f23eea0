"""Limits that people ask for: what no journal could hold is refused, in one request or added up over many."""

from pathlib import Path
from typing import Any

import pytest

from onward.config.numbers import LONGEST_S
from onward.core.bounds import MOST
from onward.errors import BadRequest
from tests.supervisor.desk import Desk

WAITS = {"text": "waited", "delay_s": 3600}


@pytest.mark.parametrize(
    "limits",
    [
        {"turns": 10**26},
        {"turns": MOST + 1},
        {"turns": 0},
        {"cost_usd": 1e300},
        {"active_s": LONGEST_S * 2},
        {"call_deadline_s": float("inf")},
        {"max_revivals": 10**26},
        {"turns": "many"},
        {"unknown": 10**26},
        {"turns": [[]]},
    ],
)
async def test_a_run_is_not_started_with_a_limit_that_makes_no_sense(limits: dict[str, Any], tmp_path: Path) -> None:
    """Nor when the same key is used again."""
    desk = Desk(tmp_path, [WAITS])
    async with desk.serving() as supervisor:
        with pytest.raises(BadRequest, match=next(iter(limits))):
            await desk.start(limits=limits, idempotency_key="mine")
        assert await supervisor.list_runs() == []
        await desk.start(idempotency_key="mine")
        with pytest.raises(Exception, match="used for another request"):
            await desk.start(limits=limits, idempotency_key="mine")


@pytest.mark.parametrize("limit", [{"turns": MOST}, {"cost_usd": float(MOST)}])
async def test_no_limit_is_raised_beyond_all_bounds(limit: dict[str, Any], tmp_path: Path) -> None:
    """However often it is raised."""
    desk = Desk(tmp_path, [WAITS])
    async with desk.serving() as supervisor:
        await desk.start(limits=dict.fromkeys(limit, 5))
        with pytest.raises(BadRequest, match="cannot be raised that far"):
            await supervisor.resume(desk.run_id, by="anna", add=limit)
        for more in (10**18, 1e300, float("inf"), float("nan")):
            with pytest.raises(BadRequest):
                await supervisor.resume(desk.run_id, by="anna", add=dict.fromkeys(limit, more))
        assert await desk.records("SettingsChanged") == []
