"""File calls that were interrupted: what they left behind is said, and what they left lying is removed."""

from pathlib import Path

import pytest

from onward.core.plan import Policy, plan
from onward.core.records import ToolCallDone
from onward.recovery.evidence import gather
from onward.testing.clocks import FakeClock
from onward.testing.fake_processes import FakeProcesses
from onward.testing.memory_store import MemoryStore
from tests.core import journals as j


@pytest.mark.parametrize(
    ("content", "prepared", "said"),
    [
        ("intended", True, "The file now holds exactly the intended content."),
        ("intended", False, "The file now holds exactly the intended content."),
        ("older", False, "something else than the intended"),
        ("older", True, "the file is as it was before the call"),
        (None, False, "The file does not exist"),
        (None, True, "the file is as it was before the call"),
    ],
)
async def test_an_interrupted_write_is_reported_with_what_the_file_holds_now(
    content: str | None, prepared: bool, said: str, tmp_path: Path
) -> None:
    """The model is told what Onward could see for itself; the call's temporary file is gone, others stay."""
    if content is not None:
        (tmp_path / "f.txt").write_text(content)
    left, other = tmp_path / ".onward-worker-1-t1c1.tmp", tmp_path / ".onward-worker-2-t1c1.tmp"
    if prepared:
        left.write_text("inten")
    other.write_text("not ours")
    call = j.call("t1c1", arguments={"path": "f.txt", "content": "intended"}) | {"name": "write_file"}
    records = [j.claimed(), j.turn(1, j.use("t1c1", "write_file"), seen=2), j.batch(1, call), j.handed_over("t1c1")]
    state = j.fold_all([j.started(workspace=str(tmp_path)), *records])

    evidence = await gather(state, MemoryStore(FakeClock(), tmp_path), FakeProcesses(), ())
    [done] = plan(state, evidence, Policy(boot_id=j.BOOT)).settlements

    assert isinstance(done, ToolCallDone)
    assert done.outcome == "interrupted"
    assert said in done.result
    assert (left.exists(), other.exists()) == (False, True)
