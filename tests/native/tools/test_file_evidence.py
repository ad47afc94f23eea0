"""After an interruption the model is told what the disk says of a file call, and nothing that it does not say."""

import os
from typing import Any

import pytest

from onward.native.tools.file_evidence import DONE, EDITED, GONE, NOT_EDITED, file_evidence
from onward.native.tools.write_file import edit_file, write_file
from tests.native.tools.world import World


def evidence(world: World, name: str, **arguments: Any) -> str | None:
    return file_evidence(name, arguments, world.workspace, str(world.top))


def test_a_write_is_compared_with_what_the_file_holds(world: World) -> None:
    assert evidence(world, "write_file", path="f", content="new") == GONE

    world.file("f", "old one")
    other = evidence(world, "write_file", path="f", content="new")
    assert other == "The file holds something else than the intended content (7 bytes, intended were 3)."

    write_file.function(world.context, path="f", content="new\ufffd")
    assert evidence(world, "write_file", path="f", content="new\ud83c") == DONE
    assert evidence(world, "write_file", path="~/workspace/f", content="new\ufffd") == DONE


@pytest.mark.parametrize(("old", "new"), [("one", "two"), ("one", "one more"), ("one more", "one"), ("one", "")])
def test_an_edit_is_told_from_none(world: World, old: str, new: str) -> None:
    world.file("f", f"<{old}>")
    before = evidence(world, "edit_file", path="f", old=old, new=new)
    edit_file.function(world.context, path="f", old=old, new=new)
    after = evidence(world, "edit_file", path="f", old=old, new=new)

    assert before == NOT_EDITED
    assert after == EDITED if new else "no old text and no new text" in str(after)


def test_where_both_texts_are_there_nothing_is_claimed(world: World) -> None:
    world.file("f", "one two")

    assert "cannot be said" in str(evidence(world, "edit_file", path="f", old="one", new="two"))


def test_nothing_is_said_of_what_cannot_be_looked_at(world: World) -> None:
    os.mkfifo(world.workspace / "fifo")

    assert evidence(world, "write_file", path="fifo", content="x") is None
    assert evidence(world, "write_file", path="", content="x") is None
    assert evidence(world, "write_file", path="..", content="x") is None
    assert evidence(world, "write_file", content="x") is None
    assert evidence(world, "write_file", path=1, content="x") is None
    assert evidence(world, "read_file", path="f") is None
    world.file("f", "")
    assert evidence(world, "edit_file", path="f", old=1, new="x") is None
    assert evidence(world, "write_file", path="f") is None
