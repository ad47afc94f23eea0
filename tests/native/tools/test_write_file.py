"""A written file holds the old or the new content, lasts once the call is done, and keeps what it was otherwise."""

import os
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.core.vocabulary import Outcome
from onward.native.tools.definition import ToolError
from onward.native.tools.write_file import edit_file, replaced, write_file
from onward.testing import faults
from tests.native.tools.world import World

BEFORE_THE_RENAME = ["before_temp", "content", "before_flush", "before_rename"]
AFTER_THE_RENAME = ["after_rename", "done"]


@pytest.fixture(autouse=True)
def faults_off() -> Iterator[None]:
    yield
    faults.install(None)


async def test_a_new_file_is_written_with_its_directories(world: World) -> None:
    result = await world.call(write_file, path="a/b/f.txt", content="Grüße\r\n\ud83c")

    assert result.text == "wrote 12 bytes to a/b/f.txt"
    assert (world.workspace / "a/b/f.txt").read_bytes() == "Grüße\r\n\ufffd".encode()
    assert world.names() == ["a", "a/b", "a/b/f.txt"]


async def test_modes_do_not_depend_on_the_daemons_umask(world: World) -> None:
    script = world.file("script", "old")
    script.chmod(0o750)
    umask = os.umask(0o077)
    try:
        await world.call(write_file, path="d/new", content="x")
        await world.call(write_file, path="script", content="new")
    finally:
        os.umask(umask)

    modes = [(world.workspace / name).stat().st_mode & 0o777 for name in ("d", "d/new", "script")]
    assert modes == [0o755, 0o644, 0o750]
    assert script.read_text() == "new"


async def test_a_symbolic_link_is_followed_and_stays(world: World) -> None:
    (world.workspace / "link").symlink_to("real/f")

    await world.call(write_file, path="link", content="x")
    await world.call(edit_file, path="link", old="x", new="y")

    assert (world.workspace / "link").is_symlink()
    assert (world.workspace / "real/f").read_text() == "y"


async def test_what_cannot_be_written_is_said_and_changes_nothing(world: World) -> None:
    world.file("f", "x")
    os.mkfifo(world.workspace / "fifo")
    (world.workspace / "loop").symlink_to("loop")

    assert "is a directory" in await world.refused(write_file, path=".", content="x")
    assert "not a regular file (FIFO)" in await world.refused(write_file, path="fifo", content="x")
    assert "Not a directory" in await world.refused(write_file, path="f/g", content="x")
    assert "Not a directory" in await world.refused(write_file, path="f/g/h", content="x")
    assert "File name too long" in await world.refused(write_file, path="n" * 256, content="x")
    assert "cannot write" in await world.refused(write_file, path="loop", content="x")
    assert "No such file" in await world.refused(edit_file, path="gone", old="x", new="y")
    assert world.names() == ["f", "fifo", "loop"]


async def test_a_workspace_that_is_gone_is_not_made_anew(world: World, tmp_path: Path) -> None:
    """Whoever brings it back, or mounts it again, finds nothing of the run in the way."""
    world.workspace.rename(tmp_path / "moved")

    for path in ("f", "a/b/f", str(world.workspace / "f")):
        assert "is gone, so nothing was written" in await world.refused(write_file, path=path, content="x")
    assert not world.workspace.exists()
    assert (await world.call(write_file, path=str(tmp_path / "elsewhere"), content="x")).outcome is Outcome.OK


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
async def test_a_read_only_file_is_not_replaced(world: World) -> None:
    world.file("f", "x").chmod(0o444)

    assert "the file is read-only" in await world.refused(write_file, path="f", content="y")


@pytest.mark.parametrize("step", BEFORE_THE_RENAME)
@pytest.mark.parametrize("error", ["eio", "enospc"])
async def test_a_failure_before_the_rename_leaves_the_old_content_and_nothing_else(
    world: World, step: str, error: str
) -> None:
    world.file("f", "old")
    faults.install(faults.FaultPlan.parse(f"tools.write.{step}={error}"))

    text = await world.refused(write_file, path="f", content="new")

    assert text.startswith(f"[error] cannot write {world.workspace}/f: ")
    assert (world.names(), (world.workspace / "f").read_text()) == (["f"], "old")
    assert not (await world.call(write_file, path="f", content="new")).is_error


@pytest.mark.parametrize("step", AFTER_THE_RENAME)
async def test_a_failure_after_the_rename_is_not_called_a_failure_to_write(world: World, step: str) -> None:
    world.file("f", "old")
    faults.install(faults.FaultPlan.parse(f"tools.write.{step}=eio"))

    assert "f was written, but a power cut may undo that" in await world.refused(write_file, path="f", content="new")
    assert (world.workspace / "f").read_text() == "new"


async def test_a_short_write_goes_on(world: World) -> None:
    faults.install(faults.FaultPlan.parse("tools.write.content=short"))

    await world.call(write_file, path="f", content="0123456789")

    assert (world.workspace / "f").read_text() == "0123456789"


@pytest.mark.parametrize("step", BEFORE_THE_RENAME + AFTER_THE_RENAME)
def test_a_crash_leaves_the_old_or_the_new_content(world: World, step: str) -> None:
    world.file("f", "old")

    child = os.fork()
    if child == 0:
        faults.install(faults.FaultPlan.parse(f"tools.write.{step}=kill"))
        write_file.function(world.context, path="f", content="new")
        os._exit(0)
    _, status = os.waitpid(child, 0)

    assert os.WTERMSIG(status) == 9
    assert (world.workspace / "f").read_text() == ("old" if step in BEFORE_THE_RENAME else "new")


def test_the_content_is_flushed_before_the_rename_and_the_name_after_it(world: World, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    faults.install(faults.FaultPlan.parse("", str(trace)))

    write_file.function(world.context, path="f", content="x")

    steps = [line.split()[1] for line in trace.read_text().splitlines()]
    assert steps == [f"tools.write.{step}#1" for step in BEFORE_THE_RENAME + AFTER_THE_RENAME]


async def test_an_edit_replaces_the_one_occurrence(world: World) -> None:
    path = world.file("f", b"caf\xe9 one two\r\n")

    result = await world.call(edit_file, path="f", old="one", new="three")

    assert result.text == "replaced 1 occurrence in f"
    assert path.read_bytes() == b"caf\xe9 three two\r\n"


async def test_edits_of_one_file_at_the_same_time_are_all_kept(world: World) -> None:
    path = world.file("f", "".join(f"<{n}>" for n in range(20)))

    async with anyio.create_task_group() as calls:
        for n in range(20):
            calls.start_soon(edit_file.call, world.context, {"path": "f", "old": f"<{n}>", "new": f"({n})"})

    assert path.read_text() == "".join(f"({n})" for n in range(20))


@pytest.mark.parametrize(
    ("content", "old", "new", "every", "says"),
    [
        ("abc", "x", "y", False, "does not occur in the file; read it again"),
        ("abc", "x", "y", True, "does not occur"),
        ("a\r\nb\r\n", "a\nb", "c", False, "its lines end in CRLF, old has LF"),
        ("x x x", "x", "y", False, "old occurs 3 times"),
        ("aaa", "aa", "b", False, "old occurs 2 times"),
        ("x" * 5000, "x", "y", False, "at least 1000 times"),
        ("abc", "", "y", False, "old is empty"),
        ("abc", "b", "b", False, "nothing to change"),
    ],
)
async def test_an_edit_that_is_not_clear_changes_nothing(
    world: World, content: str, old: str, new: str, every: bool, says: str
) -> None:
    path = world.file("f", content)

    result = await edit_file.call(world.context, {"path": "f", "old": old, "new": new, "all": every})

    assert (result.outcome, says in result.text) == (Outcome.ERROR, True)
    assert path.read_bytes() == content.encode()


text = st.text("abä\n", max_size=12).map(str.encode)


@given(text, text, text)
def test_an_edit_of_one_occurrence_changes_only_that(before: bytes, old: bytes, new: bytes) -> None:
    places = [at for at in range(len(before)) if old and before.startswith(old, at)]
    if len(places) != 1 or old == new:
        with pytest.raises(ToolError):
            replaced(before, old, new, every=False)
        return

    at = places[0]
    assert replaced(before, old, new, every=False) == (before[:at] + new + before[at + len(old) :], 1)


@given(text, text, text)
def test_an_edit_of_all_occurrences_changes_all(before: bytes, old: bytes, new: bytes) -> None:
    if not old or old not in before or old == new:
        with pytest.raises(ToolError):
            replaced(before, old, new, every=True)
        return

    pieces = before.split(old)
    assert replaced(before, old, new, every=True) == (new.join(pieces), len(pieces) - 1)
