"""One line: a checksum that finds every damaged byte, and lines that a person wrote."""

import json
import zlib

import orjson
import pytest

from onward.core.line import BadLine, decode, encode_body, seal
from tests.core.journals import TS, line, said, sealed

GOOD = line(said("é and 🍕", message_id="m-1"), seq=17, dur=15).rstrip(b"\n")


def test_a_line_is_written_as_the_format_says() -> None:
    """18 bytes of checksum, then seq, dur, ts and type, then the members; CRC-32 of all but the checksum member."""
    written = seal(17, 15, TS, encode_body({"type": "MessageAdded", "content": "é"}))

    rest = f'"seq":17,"dur":15,"ts":"{TS}","type":"MessageAdded","content":"é"}}'.encode()
    assert written == b'{"crc":"%08x",' % zlib.crc32(b"{" + rest) + rest + b"\n"


@pytest.mark.parametrize("content", ["", "a\nb", "\u2028", "\x00", "\U0001f355", '"\\', "x" * 100_000])
def test_a_written_line_is_one_line_and_reads_back(content: str) -> None:
    """Whatever text stands in a record, its line has one newline, at its end, and gives the same members."""
    written = seal(3, 2, TS, encode_body({"type": "MessageAdded", "content": content}))

    assert written.count(b"\n") == 1
    assert written.endswith(b"}\n")
    assert decode(written[:-1]) == {"seq": 3, "dur": 2, "ts": TS, "type": "MessageAdded", "content": content}


def test_a_line_made_from_the_specification_is_read() -> None:
    """A line that another program wrote by the rules is accepted, and is not counted as written by hand."""
    record = decode(GOOD)

    assert (record["seq"], record["dur"], record["content"]) == (17, 15, "é and 🍕")
    assert "hand" not in record
    assert "crc" not in record


@pytest.mark.parametrize("at", range(len(GOOD)))
def test_every_flipped_byte_is_detected(at: int) -> None:
    """No change of one byte, wherever and to whatever value, gives a line that is accepted."""
    for value in range(256):
        if value != GOOD[at]:
            damaged = GOOD[:at] + bytes([value]) + GOOD[at + 1 :]
            with pytest.raises(BadLine):
                decode(damaged)


@pytest.mark.parametrize("length", range(len(GOOD)))
def test_every_cut_is_detected(length: int) -> None:
    """No beginning of a line is accepted as a line, also where the cut goes through a character."""
    with pytest.raises(BadLine):
        decode(GOOD[:length])


@pytest.mark.parametrize(
    "written",
    [
        b'{"seq":1,"type":"X"}',
        b'  { "type": "X", "seq": 1 }  ',
        b'{"seq":1,"type":"X","dur":0}\r',
    ],
)
def test_a_line_without_any_checksum_is_accepted_and_marked(written: bytes) -> None:
    """What a person writes needs no checksum; it is marked, so that it can be counted."""
    record = decode(written)

    assert (record["seq"], record["type"], record["hand"]) == (1, "X", True)


UNSEALED = '"seq":1,"dur":0,"type":"X"}'


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(sealed(UNSEALED).replace(b'{"crc"', b'{ "crc"'), id="space before the checksum"),
        pytest.param(sealed(UNSEALED).replace(b'"crc":', b'"crc": '), id="space in the checksum"),
        pytest.param(b'{"crc":"%08X",' % 0xABCDEF12 + UNSEALED.encode(), id="upper case"),
        pytest.param(b'{"crc":"1234567",' + UNSEALED.encode(), id="seven digits"),
        pytest.param(b'{"crc":12345678,' + UNSEALED.encode(), id="number"),
        pytest.param(b'{"crc":null,' + UNSEALED.encode(), id="null"),
        pytest.param(b'{"seq":1,"type":"X","crc":"00000000"}', id="checksum elsewhere"),
        pytest.param(sealed(UNSEALED) + b"\r", id="carriage return behind a checksum"),
        pytest.param(sealed(UNSEALED) + b" ", id="space behind a checksum"),
        pytest.param(sealed(UNSEALED) * 2, id="two lines in one"),
        pytest.param(b"\x00" * 40 + sealed(UNSEALED), id="zero bytes before"),
        pytest.param(b"\x00" * 500, id="zero bytes"),
        pytest.param(b"", id="empty"),
        pytest.param(b"12", id="number alone"),
        pytest.param(b"null", id="null alone"),
        pytest.param(b"[]", id="list"),
        pytest.param(b'"x"', id="text alone"),
        pytest.param(b"{}", id="no members"),
        pytest.param(b'{"type":"X"}', id="no seq"),
        pytest.param(b'{"seq":1}', id="no type"),
        pytest.param(b'{"seq":0,"type":"X"}', id="seq 0"),
        pytest.param(b'{"seq":-1,"type":"X"}', id="negative seq"),
        pytest.param(b'{"seq":true,"type":"X"}', id="seq true"),
        pytest.param(b'{"seq":1.0,"type":"X"}', id="seq 1.0"),
        pytest.param(b'{"seq":"1","type":"X"}', id="seq text"),
        pytest.param(b'{"seq":18446744073709551615,"type":"X"}', id="seq that cannot be counted on"),
        pytest.param(b'{"seq":99999999999999999999999,"type":"X"}', id="seq of many digits"),
        pytest.param(b'{"seq":1,"type":5}', id="type 5"),
        pytest.param(b'{"seq":1,"type":"X","dur":"0"}', id="dur text"),
        pytest.param(b'{"seq":1,"type":"X","dur":null}', id="dur null"),
        pytest.param(b'{"seq":1,"type":"X","dur":-1}', id="dur negative"),
        pytest.param(b'{"seq":5,"type":"X","dur":5}', id="durable before it was written"),
        pytest.param(b'{"seq":1,"type":"\xff"}', id="invalid UTF-8"),
        pytest.param(b'{"seq":1,"type":"X","x":"\\ud83c"}', id="lone surrogate"),
        pytest.param(b'{"seq":1,"type":"X","x":NaN}', id="NaN"),
        pytest.param(b'{"seq":1,"type":"X","x":1e999}', id="infinity"),
        pytest.param(b'{"seq":1,"type":"X","x":' + b"[" * 900 + b"]" * 900 + b"}", id="deep"),
        pytest.param(sealed(UNSEALED[:-1] + ',"x":' + '{"a":' * 900 + "1" + "}" * 901), id="deep with checksum"),
        pytest.param(b'{"seq":1,"type":"X","x":' + b"[" * 100_000, id="bottomless"),
    ],
)
def test_what_is_no_whole_line_is_refused(bad: bytes) -> None:
    """Everything that was not written by the rules is a bad line, told by one exception."""
    with pytest.raises(BadLine):
        decode(bad)


def test_nesting_that_can_be_written_is_read() -> None:
    """A record as deep as text at the border may be is no bad line, and brackets in texts are no nesting."""
    deep: object = "x"
    for _ in range(140):
        deep = [deep]
    written = seal(1, 0, TS, encode_body({"type": "X", "deep": deep, "text": "[{" * 5000}))

    assert decode(written[:-1])["deep"] == deep


def test_a_member_that_is_not_known_survives() -> None:
    """A newer version's members are read as they are."""
    raw = line({"type": "X", "future": {"a": [1, None]}}, seq=1, dur=0)

    assert decode(raw[:-1])["future"] == {"a": [1, None]}


def test_the_order_of_checks_does_not_need_json() -> None:
    """The checksum covers the bytes, not the parsed value: equal JSON in other bytes is refused."""
    record = json.loads(GOOD)
    respelled = GOOD[:18] + orjson.dumps({name: record[name] for name in record if name != "crc"})[1:]
    spaced = respelled.replace(b'"seq":17', b'"seq": 17')

    assert decode(respelled) == decode(GOOD)
    with pytest.raises(BadLine):
        decode(spaced)
