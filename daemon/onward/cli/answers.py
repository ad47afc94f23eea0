"""The verbs that answer: answer, approve, deny. The first durable answer counts; the same one again is the same."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from onward.cli import values
from onward.cli.asked import grant, in_words
from onward.cli.client import Client
from onward.cli.questions import find, is_id
from onward.cli.terminal import line, say
from onward.errors import BadRequest

Json = dict[str, Any]

MAX_BYTES = 2 << 20


def answer(run: str, words: Sequence[str], *, file: Path | None) -> int:
    """Answer a question with a value; the first word may name the question."""
    named = bool(words) and is_id(words[0]) and (len(words) > 1 or file is not None)
    which, given = (words[0], list(words[1:])) if named else (None, list(words))
    if file is not None and given:
        raise BadRequest("the answer is either VALUE or in --file, not both")
    if file is None and not given:
        raise BadRequest("VALUE is missing; - reads it from stdin")
    client = Client()
    question = find(client, run, which)
    if file is not None or given == ["-"]:
        text = read(file or Path("-"))
        given = [text if question["kind"] == "edit" else text.removesuffix("\n")]
    return settle(client, question, values.answer_of(question, given))


def approve(run: str, which: str | None, *, edit: Path | None, always: bool) -> int:
    """Approve what a question is about, as it is or with changes."""
    client = Client()
    question = find(client, run, which)
    text = None if edit is None else read(edit)
    return settle(client, question, values.approval(question, edit=text, always=always))


def deny(run: str, which: str | None, *, reason: str | None) -> int:
    """Deny or reject what a question is about."""
    client = Client()
    question = find(client, run, which)
    return settle(client, question, values.denial(question, reason))


def post(client: Client, question: Json, given: Json) -> Json:
    """Give an answer; it is durable when this returns. Raises as the daemon says."""
    name = f"{question['run_id']}.{question['interaction_id']}"
    return client.post(f"/v1/interactions/{name}/answer", {"answer": given}, repeatable=True)


def settle(client: Client, question: Json, given: Json) -> int:
    """Give an answer and say what it was."""
    after = post(client, question, given)
    say(told(question, given, after))
    return 0


def told(question: Json, given: Json, after: Json) -> str:
    """Return what is said of an answer that was taken."""
    lines = [f"{question['run_id']}: {question['interaction_id']} is answered: {line(in_words(given), 200)}"]
    if given.get("always"):
        lines.append(f"allowed for the rest of the run: {grant(question)}")
    if after["status"] == "paused":
        lines.append(f"the run is paused; it goes on with: onward resume {question['run_id']}")
    return "\n".join(lines)


def read(file: Path) -> str:
    """Return the text of a file, or of stdin for `-`."""
    try:
        if str(file) == "-":
            data = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with file.open("rb") as opened:
                data = opened.read(MAX_BYTES + 1)
        text = data.decode()
    except UnicodeDecodeError:
        raise BadRequest(f"{str(file)!r} is not UTF-8 text") from None
    if len(data) > MAX_BYTES:
        raise BadRequest(f"{str(file)!r} has more than {MAX_BYTES} bytes")
    return text
