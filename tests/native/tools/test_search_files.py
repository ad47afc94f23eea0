"""search_files finds lines, bounded in time and size whatever the pattern and the files are."""

import os

import pytest

from onward.core.text import EXCERPT_BYTES
from onward.core.vocabulary import Outcome
from onward.native.tools import search_files as module
from onward.native.tools.search_files import search_files
from tests.native.tools.world import World


async def found(world: World, pattern: str, **arguments: object) -> list[str]:
    result = await world.call(search_files, pattern=pattern, **arguments)
    assert not result.is_error, result.text
    return result.text.split("\n")


async def test_matching_lines_are_found_with_file_and_number(world: World) -> None:
    world.file("b.py", "import os\n\ndef grüße():\r\n    pass\n")
    world.file("a/c.py", "def f(): pass")

    assert await found(world, r"^def \w+") == ["b.py:3: def grüße():", "a/c.py:1: def f(): pass"]
    assert await found(world, r"pass$", path="a") == ["a/c.py:1: def f(): pass"]
    assert await found(world, r"(?i)IMPORT", path="./b.py") == ["./b.py:1: import os"]
    assert await found(world, "def", path=str(world.workspace / "a")) == [f"{world.workspace}/a/c.py:1: def f(): pass"]
    assert await found(world, "nowhere") == ["[no line matches]"]


async def test_what_is_no_text_of_the_workspace_is_passed_over(world: World) -> None:
    for name in (".git/config", "sub/.git/config", "binary", "real"):
        world.file(name, "needle\n" + ("\0" if name == "binary" else ""))
    (world.workspace / "link").symlink_to("real")
    (world.workspace / "up").symlink_to("..")
    os.mkfifo(world.workspace / "fifo")

    assert await found(world, "needle") == ["real:1: needle"]
    assert await found(world, "needle", path="link") == ["link:1: needle"]
    assert await found(world, "needle", path="fifo") == ["[no line matches]"]


async def test_names_and_lines_are_valid_text(world: World) -> None:
    world.file(os.fsdecode(b"\xff\nx"), b"caf\xe9 \xed\xa0\x80\n")

    assert await found(world, "caf") == ["\ufffd\\nx:1: caf\ufffd \ufffd\ufffd\ufffd"]


async def test_the_limit_is_kept_and_said(world: World) -> None:
    world.file("f", "x\n" * 10)

    assert await found(world, "x", limit=2) == ["f:1: x", "f:2: x", "[the first 2 matching lines; there are more]"]
    assert len(await found(world, "x", limit=10)) == 10


async def test_a_long_line_is_shown_around_its_match_and_the_text_is_bounded(world: World) -> None:
    world.file("f", ("ä" * 10_000 + "needle" + "ö" * 10_000 + "\n") * 1000)

    result = await world.call(search_files, pattern="needle", limit=1000)

    assert len(result.text.encode()) <= EXCERPT_BYTES
    first, *_, last = result.text.split("\n")
    assert first.startswith("f:1: ...ää")
    assert "äneedleö" in first
    assert first.endswith("öö...")
    assert last.endswith("matching lines; there are more]")


async def test_the_number_of_a_line_counts_lines_not_pieces(world: World) -> None:
    world.file("f", "x" * 200_000 + "\nneedle\n")

    assert await found(world, "needle") == ["f:2: needle"]


@pytest.mark.parametrize("pattern", ["(", "[", "a{99999999999999999999}", "(?P<a>x)(?P<a>y)", "(" * 5000])
async def test_a_bad_pattern_is_said(world: World, pattern: str) -> None:
    assert "bad pattern: " in await world.refused(search_files, pattern=pattern)


async def test_what_cannot_be_searched_is_said(world: World) -> None:
    assert "No such file or directory" in await world.refused(search_files, pattern="x", path="gone")
    assert "less than or equal to 1000" in await world.refused(search_files, pattern="x", limit=1001)


async def test_a_pattern_that_never_ends_is_ended_and_what_was_found_is_kept(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SECONDS", 1.0)
    world.file("a", "aaa\n")
    world.file("b", "a" * 5000 + "!\n")

    result = await world.call(search_files, pattern="^(a+)+$")

    assert result.outcome is Outcome.TIMEOUT
    assert result.text.split("\n") == [
        "[error] stopped after 1 s; search a smaller path or with a simpler pattern",
        "a:1: aaa",
    ]
