"""Entries for journald: fields that can be searched, and none that was forged."""

import socket
from pathlib import Path

import pytest

from onward.supervisor.journald import JournalWriter, entry


def fields(datagram: bytes) -> dict[str, str]:
    assert datagram.endswith(b"\n")
    return dict(line.split("=", 1) for line in datagram.decode().removesuffix("\n").split("\n"))


def test_severity_run_and_call_are_fields() -> None:
    found = fields(entry('{"event": "x"}', {"level": "warning", "run_id": "r", "call_id": "t1c1", "event": "x"}))
    assert found == {
        "PRIORITY": "4",
        "SYSLOG_IDENTIFIER": "onward",
        "RUN_ID": "r",
        "CALL_ID": "t1c1",
        "MESSAGE": '{"event": "x"}',
    }


@pytest.mark.parametrize(("level", "priority"), [("debug", "7"), ("info", "6"), ("error", "3"), ("critical", "2")])
def test_priorities_are_those_of_syslog(level: str, priority: str) -> None:
    assert fields(entry("x", {"level": level}))["PRIORITY"] == priority


def test_a_line_break_makes_no_field() -> None:
    found = fields(entry("a\n_UID=0", {"run_id": "r\nPRIORITY=0"}))
    assert (found["MESSAGE"], found["RUN_ID"], found["PRIORITY"]) == ("a\\n_UID=0", "r\\nPRIORITY=0", "6")
    assert "_UID" not in found


def test_what_journald_does_not_take_is_said_on_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journald:
        journald.bind(str(tmp_path / "socket"))
        writer = JournalWriter(tmp_path / "socket")
        writer.write("first", {})
        assert b"MESSAGE=first" in journald.recv(4096)
    writer.write("second", {})
    writer.close()
    assert capsys.readouterr().err == "second\n"
