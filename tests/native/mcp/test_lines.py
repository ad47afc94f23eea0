"""Lines of a stream that may hold anything."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onward.native.mcp.lines import Lines, TooLong


def lines_of(data: bytes, size: int, limit: int) -> list[bytes | TooLong]:
    lines = Lines(limit)
    return [line for at in range(0, len(data), size) for line in lines.feed(data[at : at + size])]


@settings(max_examples=50)
@given(st.lists(st.binary().map(lambda data: data.replace(b"\n", b"")), max_size=8), st.integers(1, 9))
def test_lines_come_whole_however_they_are_cut(expected: list[bytes], size: int) -> None:
    data = b"".join(line + b"\n" for line in expected) + b"a rest without an end"

    assert lines_of(data, size, 1000) == expected


@settings(max_examples=50)
@given(st.integers(1, 40), st.integers(11, 200))
def test_the_line_after_one_that_is_too_long_is_intact(size: int, length: int) -> None:
    found = lines_of(b"x" * length + b"\nnext\n", size, 10)

    assert found == [TooLong(b"x" * len(found[0].head), b"x" * len(found[0].tail), length), b"next"]  # type: ignore[union-attr]


def test_what_is_kept_of_a_line_does_not_grow() -> None:
    lines = Lines(1000)
    for _ in range(200):
        assert list(lines.feed(b"y" * 64 * 1024)) == []

    (found,) = lines.feed(b"z\n")

    assert isinstance(found, TooLong)
    assert (len(found.head), len(found.tail), found.length) == (512, 512, 200 * 64 * 1024 + 1)


@pytest.mark.parametrize(
    ("start", "end", "request_id"),
    [
        (b'{"jsonrpc":"2.0","id":17,"result":', b"}", 17),
        (b'{"result":', b',"jsonrpc":"2.0","id": 4}', 4),
        (b'{"result":', b"}", None),
        (b'{"id":"text","result":', b"}", None),
    ],
)
def test_whose_answer_a_too_long_line_was_is_found(start: bytes, end: bytes, request_id: int | None) -> None:
    (found,) = lines_of(start + b'"' + b"x" * 5000 + b'"' + end + b"\n", 700, 100)

    assert isinstance(found, TooLong)
    assert found.request_id() == request_id
