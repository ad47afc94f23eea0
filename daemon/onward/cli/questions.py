"""Finding questions: the open ones, and the one that is meant."""

import re
from typing import Any

from onward.cli.asked import in_words, show
from onward.cli.client import Client
from onward.cli.runs import resolve
from onward.cli.terminal import line, out, out_json, say
from onward.core.records import problem_with
from onward.errors import BadRequest, Conflict, NotFound

Json = dict[str, Any]

_ID = re.compile(r"(?:(?P<run>[a-z0-9][a-z0-9-]{2,63})\.)?(?P<question>q[1-9][0-9]{0,8})")


def questions(run: str | None, *, as_json: bool) -> int:
    """List the open questions, of one run or of all."""
    client = Client()
    found = open_questions(client, None if run is None else resolve(client, run))
    if as_json:
        for question in found:
            out_json(question)
        return 0
    for number, question in enumerate(found):
        if number:
            out()
        show(question, whole=run is not None)
    if not found:
        say("no question is open")
    return 0


def open_questions(client: Client, run_id: str | None = None) -> list[Json]:
    """Return the open questions, the oldest first."""
    found: list[Json] = client.get("/v1/interactions", run_id=run_id)["interactions"]
    return found


def find(client: Client, run: str, which: str | None) -> Json:
    """Return the question that is meant: that of an id (open or not), or the only one that is open.

    Raises:
        NotFound: The run has asked no such question.
        BadRequest: Several are open and none is named.
        Conflict: None is open and none is named.
    """
    run_id = resolve(client, run)
    found = open_questions(client, run_id)
    if which is not None:
        wanted = _of_run(which, run_id)
        named = next((item for item in found if item["interaction_id"] == wanted), None)
        return named or _asked_before(client, run_id, wanted)
    if len(found) == 1:
        return found[0]
    if not found:
        raise Conflict(f"{run_id} asks nothing now{_newest_answer(client, run_id)}")
    listed = "\n  ".join(f"{item['interaction_id']}  {item['kind']}: {line(item['prompt'], 100)}" for item in found)
    raise BadRequest(f"{run_id} asks {len(found)} questions; say which one is meant:\n  {listed}")


def is_id(text: str) -> bool:
    """Say whether a word is written like the id of a question: `q3`, or `RUN.q3`."""
    return _ID.fullmatch(text) is not None


def _of_run(which: str, run_id: str) -> str:
    parts = _ID.fullmatch(which)
    if parts is None:
        raise BadRequest(f"{which[:80]!r} is no question; they are named like q3, see: onward questions {run_id}")
    if parts["run"] not in (None, run_id):
        raise BadRequest(f"{which[:80]!r} is a question of another run than {run_id}")
    return parts["question"]


def _asked_before(client: Client, run_id: str, wanted: str) -> Json:
    """A question that is no longer open is still answered, so that the daemon can say how it was answered."""
    for record in client.records(run_id):
        if _is_whole(record, "InteractionOpened") and record["interaction_id"] == wanted:
            return {**record, "run_id": run_id}
    raise NotFound(f"{run_id} has asked no question {wanted}; the open ones: onward questions {run_id}")


def _newest_answer(client: Client, run_id: str) -> str:
    answered = [record for record in client.records(run_id) if _is_whole(record, "InteractionAnswered")]
    if not answered:
        return ""
    return f"; its newest question, {answered[-1]['interaction_id']}, was answered by {_said(answered[-1])}"


def _is_whole(record: Json, kind: str) -> bool:
    return record["type"] == kind and problem_with(record) is None


def _said(record: Json) -> str:
    return line(f"{record.get('by')}: {in_words(record.get('answer'))}", 400)
