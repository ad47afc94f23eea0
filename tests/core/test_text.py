"""Text at the border is valid, bounded and shows what it hides, whatever comes in."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.core.text import JSON_DEPTH, TOO_DEEP, clean, clean_json, decode, display, excerpt, without_gaps

any_text = st.text(st.characters(exclude_categories=()))  # lone surrogates too
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | any_text,
    lambda inner: st.lists(inner) | st.dictionaries(any_text, inner),
)


@given(any_text)
def test_clean_text_is_valid_utf8_without_nul_and_stays_as_it_is(text: str) -> None:
    cleaned = clean(text)

    assert cleaned.encode().decode() == cleaned
    assert "\0" not in cleaned
    assert len(cleaned) == len(text)
    assert clean(cleaned) == cleaned


def test_clean_keeps_everything_that_is_valid() -> None:
    assert clean("ä\u2028🍕\x1b\r\n\t") == "ä\u2028🍕\x1b\r\n\t"
    assert clean("\ud83c-\0") == "\ufffd-\ufffd"


@given(st.binary())
def test_decode_gives_clean_text_for_any_bytes(data: bytes) -> None:
    text = decode(data)

    assert clean(text) == text


def test_decode_replaces_only_what_is_invalid() -> None:
    assert decode(b"a\xb2\xff\xfe\0\xe2\x80\xa8z\xf0\x9f") == "a\ufffd\ufffd\ufffd\ufffd\u2028z\ufffd"


@given(json_values)
def test_clean_json_can_be_written_to_a_journal_and_read_back(value: object) -> None:
    cleaned = clean_json(value)

    assert orjson.loads(orjson.dumps(cleaned)) == cleaned


@given(st.integers(-(1 << 63), (1 << 64) - 1) | st.booleans() | st.none())
def test_clean_json_keeps_numbers_that_can_be_written(value: object) -> None:
    assert clean_json({"n": [value]}) == {"n": [value]}


def test_clean_json_keeps_the_digits_of_an_integer_that_cannot_be_written() -> None:
    assert clean_json([1 << 64, -(1 << 63) - 1]) == ["18446744073709551616", "-9223372036854775809"]


def test_clean_json_ends_at_a_depth_that_can_be_written() -> None:
    bomb: Any = []
    for _ in range(100_000):
        bomb = [bomb]

    cleaned = clean_json(bomb)

    depth = 0
    while isinstance(cleaned, list):
        cleaned, depth = cleaned[0], depth + 1
    assert (cleaned, depth) == (TOO_DEEP, JSON_DEPTH)


@given(st.text(max_size=3000), st.integers(128, 2000))
def test_an_excerpt_is_bounded_and_counts_what_it_leaves_out(text: str, limit: int) -> None:
    short = excerpt(text, limit)

    assert len(short.encode()) <= limit
    if len(text.encode()) <= limit:
        assert short == text
        return
    head, _, rest = short.partition("\n[... ")
    count, _, rest = rest.partition(" bytes left out ...]\n")
    if "[..." not in text:
        assert text.startswith(head)
        assert text.endswith(rest)
        assert len(head.encode()) + int(count) + len(rest.encode()) == len(text.encode())


@pytest.mark.parametrize("limit_bytes", [128, 129])
def test_an_excerpt_without_room_holds_only_the_count(limit_bytes: int) -> None:
    assert excerpt("x" * 10_000, limit_bytes) == "\n[... 10000 bytes left out ...]\n"


@pytest.mark.parametrize(
    "hidden",
    [
        "\u212a",
        "\u037e",
        "\u1fef",
        "\xa0",
        "\u2003",
        "\u2800",
        "\u3000",
        "\0",
        "\x1b",
        "\r",
        "\x9b",
        "\xad",
        "\u061c",
        "\u200b",
        "\u202e",
        "\u2066",
        "\u2028",
        "\ufeff",
        "\U000e0041",
    ],
)
def test_display_shows_what_would_act_or_hide_or_is_not_what_it_seems(hidden: str) -> None:
    shown = display(f"a{hidden}b")

    assert hidden not in shown
    assert shown in (f"a\\u{{{ord(hidden):x}}}b", "a\ufffdb")


def test_display_changes_no_character_into_another() -> None:
    """What is shown of a command is that command: a normal form is another text."""
    assert display("e\u0301 \xe9 \u1e9b\u0323") == "e\u0301 \xe9 \u1e9b\u0323"


def test_gaps_are_counted_so_that_nothing_stands_out_of_sight_behind_them() -> None:
    text = f"ls{' ' * 5000}; rm -rf /{chr(10) * 60}really"
    assert without_gaps(text) == "ls[5000 blanks]; rm -rf /\n[59 blank lines]\nreally"


def test_display_keeps_text_tabs_and_lines() -> None:
    assert display("Grüße,\n\t世界 ❤️ 🍕") == "Grüße,\n\t世界 ❤️ 🍕"


@given(any_text, st.integers(1, 50))
def test_display_is_bounded_and_valid(text: str, limit: int) -> None:
    shown = display(text, limit)

    assert shown.encode().decode() == shown
    assert len(shown) <= limit + len(f"… ({10 * len(text)} more characters)")


def test_display_counts_what_it_cuts() -> None:
    assert display("x" * 30, 10) == "xxxxxxxxxx… (20 more characters)"
