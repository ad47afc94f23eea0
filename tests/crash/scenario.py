"""What the swept run does: every kind of durable write, and side effects that can be counted.

A shell command with a side effect adds one line, a key of its own, to `effects`: the truth about what took effect.
"""

import json
from pathlib import Path
from typing import Any

EFFECTS = "effects"
LARGE = 70_000
"""More than a line of the journal may have, and more than a result shows."""

Turn = dict[str, Any]


def bump(key: str, then: str = "", *, before: str = "") -> Turn:
    """A call with one side effect."""
    return call("shell", command=f"{before}echo {key} >> ../{EFFECTS}; {then or 'echo done'}")


def call(name: str, **arguments: object) -> Turn:
    return {"name": name, "arguments": arguments}


def turn(text: str = "", *calls: Turn, **members: object) -> Turn:
    return {"text": text, "calls": list(calls), **members}


def representative() -> list[Turn]:
    """Several turns that pass every durable write of a run."""
    reads = [call("read_file", path=name) for name in ("note.txt", "second.txt", "absent.txt")]
    return [
        turn("I begin.", bump("first")),
        turn(
            "Two files.", call("write_file", path="note.txt", content="one\n"), bump("second", "cp note.txt second.txt")
        ),
        turn("", call("edit_file", path="note.txt", old="one", new="two"), bump("third", before="sleep 0.05; ")),
        turn("Side by side.", *reads, call("list_files", path=".")),
        turn("", bump("fourth", f"head -c {LARGE} /dev/zero | tr '\\0' x")),
        turn("l" * LARGE, call("write_file", path="large.txt", content="L" * LARGE)),
        turn("After a failure.", bump("fifth"), bump("sixth"), fail="network", fail_times=1),
        turn("Done.", call("finish", result="all of it")),
    ]


def write_script(directory: Path, turns: list[Turn], name: str = "script.json") -> Path:
    path = directory / name
    path.write_text(json.dumps({"turns": turns}))
    return path


def effects(home: Path) -> list[str]:
    """Every side effect that happened, in order."""
    path = home / EFFECTS
    return path.read_text().split() if path.exists() else []
