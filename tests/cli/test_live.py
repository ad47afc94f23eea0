"""The answer that is being written fits the terminal, whatever it is made of."""

import io

import pytest

from onward.cli.live import LINES, LiveText, wrapped


@pytest.mark.parametrize(
    ("text", "columns", "lines"),
    [
        ("", 10, [""]),
        ("abc", 3, ["abc"]),
        ("abcd", 3, ["abc", "d"]),
        ("ab\n\ncd", 3, ["ab", "", "cd"]),
        ("漢字漢", 4, ["漢字", "漢"]),
        ("a漢字", 4, ["a漢", "字"]),
        ("e\u0301e\u0301e\u0301", 2, ["e\u0301e\u0301", "e\u0301"]),
    ],
)
def test_lines_have_so_many_cells(text: str, columns: int, lines: list[str]) -> None:
    assert wrapped(text, columns) == lines


def test_only_the_end_of_a_long_text_is_drawn_and_all_of_it_is_taken_away() -> None:
    written = io.StringIO()
    live = LiveText(written, lambda: (40, 24))
    for number in range(100):
        live.add(f"line {number}\n")
    last = written.getvalue().rpartition("\x1b[J")[2]
    assert last.count("\n") == LINES - 1
    assert "line 99" in last
    live.clear()
    assert written.getvalue().endswith(f"\r\x1b[{LINES - 1}A\x1b[J")


def test_a_tiny_terminal_is_no_reason_to_fail() -> None:
    live = LiveText(io.StringIO(), lambda: (0, 0))
    live.add("x" * 1000)
    live.clear()


def test_without_a_terminal_nothing_is_wanted_or_written() -> None:
    live = LiveText(None)
    assert live.on_delta is None
    live.clear()
