"""What the servers of the tests can do, of the standard library alone. `sys.argv[1]` is the DIR they do it in.

Told by files in DIR: `tools.json` adds tools with any name and schema; `mute` makes a server silent when it starts,
`broken` ends it then; with `stubborn` it stays when nobody speaks to it any more, with `deaf` TERM does not end it.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

DIR = Path(sys.argv[1])
ANY = {"type": "object", "properties": {"name": {"type": "string", "description": "whose\u202e count"}}}
PIXEL = "iVBORw0KGgo="

Json = dict[str, Any]


def started() -> None:
    note(f"started {os.getpid()}")
    if (DIR / "mute").exists():
        signal.pause()
    if (DIR / "broken").exists():
        sys.exit(f"no luck with {os.environ.get('MARKED')}")


def left_alone() -> None:
    """Nobody speaks to the server any more."""
    if (DIR / "stubborn").exists():
        if (DIR / "deaf").exists():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.pause()


def tools() -> list[Json]:
    listed = [{"name": name, "description": f"It does {name}.", "inputSchema": ANY} for name in ACTS]
    more = DIR / "tools.json"
    for name, schema in (json.loads(more.read_text()) if more.exists() else {}).items():
        described = "\x1b[2Kmore\u200b" + "!" * 9000
        listed.append({"name": name, "description": described, "inputSchema": schema})
    return listed


def act(name: str, arguments: Json) -> Json | None:
    """Do it; None: it never answers."""
    if name not in ACTS:
        return said(f"unknown tool {name}", is_error=True)
    return ACTS[name](arguments)


def said(text: str, *more: Json, is_error: bool = False) -> Json:
    return {"content": [{"type": "text", "text": text}, *more], "isError": is_error}


def note(word: str) -> None:
    with (DIR / "effects").open("a") as file:
        file.write(word + "\n")


def bump(arguments: Json) -> Json:
    note(str(arguments.get("name", "bump")))
    return said(f"bumped {arguments.get('name', 'bump')}")


def bump_and_die(arguments: Json) -> Json:
    bump(arguments)
    return die(arguments)


def die(arguments: Json) -> Json:
    os.kill(os.getpid(), signal.SIGKILL)
    return said("never")


def hang(arguments: Json) -> None:
    note("hanging")


def huge(arguments: Json) -> Json:
    return said("a" * 100_000 + "\x00" + "z" * 100_000)


def too_huge(arguments: Json) -> Json:
    return said("b" * (17 * 1024 * 1024))


def picture(arguments: Json) -> Json:
    blob = {"uri": "file:///a.bin", "blob": "AAAA", "mimeType": "x/y"}
    image = {"type": "image", "data": PIXEL, "mimeType": "image/png"}
    return said("look:", image, {"type": "resource", "resource": blob})


def fails(arguments: Json) -> Json:
    return said("it did not work", is_error=True)


def environment(arguments: Json) -> Json:
    return said(json.dumps(dict(os.environ)))


def noise(arguments: Json) -> Json:
    sys.stderr.write(("e" * 5000 + "\n") * 400 + os.environ.get("MARKED", "") + "\n")
    sys.stderr.flush()
    return said("made noise")


def orphan(arguments: Json) -> Json:
    """Leave a child behind that holds our stdout, and die."""
    if (child := os.fork()) == 0:
        signal.pause()
    note(f"started {child}")
    return die(arguments)


def nonsense(arguments: Json) -> Json:
    return {"content": "no list"}


ACTS: dict[str, Callable[[Json], Json | None]] = {
    function.__name__: function
    for function in (
        bump, bump_and_die, die, hang, huge, too_huge, picture, fails, environment, noise, orphan, nonsense,
    )
}  # fmt: skip
