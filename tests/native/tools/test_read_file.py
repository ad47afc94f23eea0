"""read_file gives whole lines in bounded pieces, says how to read on, and never hangs or guesses."""

import os
import re
import socket

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onward.core.text import EXCERPT_BYTES, decode
from onward.native.tools.read_file import read_file
from tests.native.tools.world import World


@pytest.mark.parametrize("content", ["one line", "a\nb\n", "a\r\nb\r\n", "\n\n", "ä\u2028🍕\x1b[0m"])
async def test_a_small_file_is_given_as_it_is(world: World, content: str) -> None:
    world.file("f", content)

    result = await world.call(read_file, path="f")

    assert (result.text, result.is_error) == (content, False)


@pytest.mark.parametrize(
    ("offset", "limit", "text"),
    [
        (0, 2, "0\n1\n[lines 1 to 2; there is more, read on with offset 2]"),
        (2, 2, "2\n3\n[lines 3 to 4; there is more, read on with offset 4]"),
        (3, None, "3\n4\n"),
        (4, 1, "4\n"),
    ],
)
async def test_lines_are_skipped_and_counted(world: World, offset: int, limit: int | None, text: str) -> None:
    world.file("f", "0\n1\n2\n3\n4\n")

    assert (await world.call(read_file, path="f", offset=offset, limit=limit)).text == text


async def test_paths_are_relative_to_the_workspace_absolute_or_below_home(world: World) -> None:
    path = world.file("sub/f", "x")
    (world.top / "at-home").write_text("h")

    assert (await world.call(read_file, path="./sub/../sub/f")).text == "x"
    assert (await world.call(read_file, path=str(path))).text == "x"
    assert (await world.call(read_file, path="~/at-home")).text == "h"


async def test_bytes_that_are_no_text_are_replaced(world: World) -> None:
    world.file("f", b"caf\xe9\n" + b"x" * 9000 + b"\0")

    assert (await world.call(read_file, path="f")).text == "caf\ufffd\n" + "x" * 9000 + "\ufffd"


async def test_what_cannot_be_read_is_said(world: World) -> None:
    world.file("binary", b"\x7fELF\0\1")
    world.file("f", "1\n2\n")
    os.mkfifo(world.workspace / "fifo")
    (world.workspace / "loop").symlink_to("loop")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(world.workspace / "socket"))

    assert "binary is a binary file (6 bytes)" in await world.refused(read_file, path="binary")
    assert "is a directory; list_files" in await world.refused(read_file, path=".")
    assert "gone: No such file or directory" in await world.refused(read_file, path="gone")
    assert "f/x: Not a directory" in await world.refused(read_file, path="f/x")
    assert "not a regular file (FIFO)" in await world.refused(read_file, path="fifo")
    assert "not a regular file (socket)" in await world.refused(read_file, path="socket")
    assert "not a regular file (device)" in await world.refused(read_file, path="/dev/zero")
    assert "Too many levels of symbolic links" in await world.refused(read_file, path="loop")
    assert "the path is empty" in await world.refused(read_file, path="")
    assert "has only 2 lines" in await world.refused(read_file, path="f", offset=2)
    assert "has only 2 lines" in await world.refused(read_file, path="f", offset=10**12)
    assert "greater than or equal to 0" in await world.refused(read_file, path="f", offset=-1)
    assert "No such file" in await world.refused(read_file, path="a\nb\0")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
async def test_a_forbidden_file_is_said(world: World) -> None:
    world.file("secret", "x").chmod(0)

    assert "secret: Permission denied" in await world.refused(read_file, path="secret")


async def test_an_empty_file_is_said(world: World) -> None:
    world.file("f", "")

    assert (await world.call(read_file, path="f")).text == "[the file is empty]"


async def test_a_line_too_long_for_one_piece_is_cut_and_the_next_one_can_be_read(world: World) -> None:
    world.file("f", "short\n" + "ä" * 2_500_000 + "\nlast\n")

    first = await world.call(read_file, path="f")
    second = await world.call(read_file, path="f", offset=1)
    third = await world.call(read_file, path="f", offset=2)

    assert first.text == "short\n[lines 1 to 1; there is more, read on with offset 1]"
    assert second.text.startswith("ääää")
    assert second.text.endswith(
        "ä\n[line 2 has 5000001 bytes and is cut here; use shell to see the rest of it]"
        "\n[lines 2 to 2; there is more, read on with offset 2]"
    )
    assert len(second.text.encode()) <= EXCERPT_BYTES
    assert third.text == "last\n"


# How a line begins, and how many bytes more it has: made long in the test, so that hypothesis can show it.
parts = st.lists(st.tuples(st.binary(max_size=40), st.sampled_from([0, 1, 20_000, 70_000])), max_size=8)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=50)
@given(parts=parts, end=st.sampled_from([b"", b"\n"]))
async def test_reading_on_as_told_gives_every_line_once(
    world: World, parts: list[tuple[bytes, int]], end: bytes
) -> None:
    lines = [begin.replace(b"\n", b"").replace(b"\0", b"") + b"\xfe" * more for begin, more in parts]
    world.file("f", b"\n".join(lines) + end)
    expected = [decode(line) for line in (b"\n".join(lines) + end).split(b"\n")]
    offset, got = 0, list[str]()

    while True:
        text = (await world.call(read_file, path="f", offset=offset)).text
        assert len(text.encode()) <= EXCERPT_BYTES
        text, *more = re.split(r"\n\[lines \d+ to \d+; there is more, read on with offset (\d+)\]\Z", text)
        text, *cut = re.split(r"\n\[line \d+ has \d+ bytes and is cut here; [^\n]*\]\Z", text)
        if cut:
            [whole] = [expected[offset]]
            assert whole.startswith(text)
            assert len(whole.encode()) > EXCERPT_BYTES - 512
            text = whole
        if not more:
            got += text.removesuffix("\n").split("\n")
            break
        got += text.split("\n")
        offset = int(more[0])

    if expected[-1] == "":
        expected.pop()
    assert got == (expected or ["[the file is empty]"])
