"""What `runs/README.md` tells a reader in another language is what is written."""

import re
import zlib
from pathlib import Path

import pytest

from onward.core import interactions, records, vocabulary
from onward.core.line import seal
from onward.core.records import RECORD_TYPES
from onward.ports.process import EndedBy

README = (Path(__file__).parents[2] / "runs" / "README.md").read_text()
ROWS = {row[0]: row[1:] for row in re.findall(r"^\| ([A-Z]\w+) \| (.+) \| (.+) \|$", README, re.MULTILINE)}
WORDS = [
    *vocabulary.Outcome, *vocabulary.Cause, *vocabulary.Source, *vocabulary.Needs, *vocabulary.SettledBy,
    *vocabulary.Effect, *interactions.Kind, *EndedBy,
]  # fmt: skip


def test_every_record_stands_there() -> None:
    assert set(ROWS) == set(RECORD_TYPES)


@pytest.mark.parametrize("name", RECORD_TYPES)
def test_every_member_of_a_record_stands_there(name: str) -> None:
    """In its order; what may be missing in brackets."""
    shape = records._SHAPES[name]
    required, _, optional = ROWS[name][-1].partition("[")

    assert re.findall(r"\w+", required) == [member for member, _ in shape.required]
    assert re.findall(r"\w+", optional) == [member for member, _ in shape.optional]


@pytest.mark.parametrize("word", sorted(set(map(str, WORDS))))
def test_every_word_of_the_closed_sets_stands_there(word: str) -> None:
    assert re.search(rf"\b{word}\b", README)


def test_a_line_is_sealed_as_the_readme_says() -> None:
    """The sentence about the checksum, carried out by hand."""
    text = seal(17, 15, "2026-11-30T19:04:05.123456Z", b'{"type":"ToolBatch"}').removesuffix(b"\n")
    assert text[:8] + text[16:18] == b'{"crc":"",'
    assert int(text[8:16], 16) == zlib.crc32(b"{" + text[18:])
