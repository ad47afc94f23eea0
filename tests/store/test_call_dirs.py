"""The evidence of calls: made once, removed when it is not needed any more."""

import shutil
from collections.abc import Callable
from pathlib import Path

from onward.testing.faults import FaultPlan
from tests.store.worlds import RUN, installed, started, store_at


class Meanwhile(FaultPlan):
    """Does something, once, right before a removal."""

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__()
        self.acts = [act]

    def hit(self, point: str) -> str | None:
        if point == "remove.before" and self.acts:
            self.acts.pop()()
        return None


async def test_evidence_that_somebody_else_removes_meanwhile_is_gone_all_the_same(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        await store.create(started())
        call_dir = await store.make_call_dir(RUN, "t1c1")
        for name in ("identity", "stdout", "exit"):
            (call_dir / name).touch()
        with installed(Meanwhile(lambda: shutil.rmtree(call_dir))):
            await store.remove_call_dir(RUN, "t1c1")
        assert await store.call_dirs(RUN) == []
