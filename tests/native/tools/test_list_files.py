"""list_files shows what is near first, in order, bounded, and enters neither `.git` nor links."""

import os

import pytest

from onward.core.text import EXCERPT_BYTES
from onward.native.tools.list_files import MAX_ENTRIES, list_files
from tests.native.tools.world import World


async def listed(world: World, path: str | None = None) -> list[str]:
    result = await world.call(list_files, path=path)
    assert not result.is_error, result.text
    return result.text.split("\n")


async def test_everything_below_is_listed_in_order(world: World) -> None:
    for name in ("b.txt", "a/z", "a/b/c", ".hidden", ".git/config"):
        world.file(name, "")
    (world.workspace / "up").symlink_to("..")

    assert await listed(world) == [".git/", ".hidden", "a/", "a/b/", "a/b/c", "a/z", "b.txt", "up"]
    assert await listed(world, "a") == ["a/b/", "a/b/c", "a/z"]
    assert await listed(world, f"{world.workspace}/a/b/") == [f"{world.workspace}/a/b/c"]


async def test_names_are_one_line_of_valid_text_each(world: World) -> None:
    world.file("two\nlines", "")
    (world.workspace / os.fsdecode(b"\xff")).touch()

    assert await listed(world) == ["two\\nlines", "\ufffd"]


async def test_what_is_no_directory_is_said(world: World) -> None:
    world.file("f", "")

    assert "f is not a directory" in await world.refused(list_files, path="f")
    assert "No such file" in await world.refused(list_files, path="gone")
    (world.workspace / "f").unlink()
    assert await listed(world) == ["[the directory is empty]"]


async def test_a_full_directory_does_not_hide_its_neighbours(world: World) -> None:
    for n in range(MAX_ENTRIES + 100):
        world.file(f"a/{n:05}", "")
    world.file("z/last", "")

    lines = await listed(world)

    assert lines[:2] == ["a/", "a/00000"]
    assert lines[-2:] == [
        "z/",
        f"[there is more: only the nearest {MAX_ENTRIES} are shown; list a directory below, or use shell]",
    ]
    assert len(lines) == MAX_ENTRIES + 1


async def test_long_names_are_bounded_too(world: World) -> None:
    for n in range(400):
        world.file(f"{n:03}" + "ä" * 120, "")

    result = await world.call(list_files)

    assert len(result.text.encode()) <= EXCERPT_BYTES
    assert "there is more" in result.text


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
async def test_an_unreadable_directory_is_counted(world: World) -> None:
    world.file("a/f", "")
    (world.workspace / "a").chmod(0)

    assert await listed(world) == ["a/", "[1 directories could not be read]"]
    assert "Permission denied" in await world.refused(list_files, path="a")
    (world.workspace / "a").chmod(0o700)
