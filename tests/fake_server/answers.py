"""What the fake server answers: whole turns, errors, and all the ways in which a stream breaks."""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer. `blocks` are Anthropic's; `events` go out as they are instead of them.

    `cut_after` so many events the connection breaks, `end_after` so many the stream ends well, `stall_after` so many
    nothing comes until the server is told to go on.
    """

    blocks: Sequence[Json] = ()
    stop: str | None = None
    usage: Json | None = field(default_factory=lambda: {"input": 100, "output": 20})
    status: int = 200
    error: Any = None
    headers: Json = field(default_factory=dict)
    events: Sequence[Json] | None = None
    cut_after: int | None = None
    end_after: int | None = None
    stall_after: int | None = None

    @property
    def asks(self) -> bool:
        return any(block["type"] == "tool_use" for block in self.blocks)


Script = Callable[[int, Json], Answer]
"""Chooses the answer from how many turns the request holds, and its body."""


def text(content: str) -> Json:
    return {"type": "text", "text": content}


def call(name: str, arguments: Any = None, known: str | None = None) -> Json:
    """A tool call; text as `arguments` is sent as it is."""
    view_id = f"toolu_{uuid.uuid4().hex[:16]}" if known is None else known
    return {"type": "tool_use", "id": view_id, "name": name, "input": {} if arguments is None else arguments}


def thinking(content: str, signature: str) -> Json:
    return {"type": "thinking", "thinking": content, "signature": signature}


def refused(status: int, kind: str = "", message: str = "", **headers: str) -> Answer:
    """An error as both providers write it: `kind` is type and code, `_` in a header's name is a dash."""
    error = {"type": kind or "error", "message": message or f"fake {status}", "code": kind or None}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status=status, error={"type": "error", "error": error}, headers=named)


def in_turn(*answers: Answer) -> Script:
    """The answer at position n answers a request that holds n turns: asking again gives the same again."""
    return lambda turns, _body: answers[min(turns, len(answers) - 1)]


def in_order(*answers: Answer) -> Script:
    """Each request gets the next answer; the last one repeats."""
    left = list(answers)
    return lambda _turns, _body: left.pop(0) if len(left) > 1 else left[0]
