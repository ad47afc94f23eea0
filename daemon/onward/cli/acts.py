"""What a person does to a run: send, pause, resume, revive, cancel. Asked twice, each is done once and says so."""

import os
import sys
from typing import Any

from onward.cli.client import Client
from onward.cli.follow import ENDED
from onward.cli.runs import resolve
from onward.cli.terminal import line, say
from onward.errors import BadRequest, Conflict, Refused

Json = dict[str, Any]

MAX_STDIN_BYTES = 4 << 20


def send(run: str, text: str) -> int:
    """Say something to a run; `-` says what stands on stdin."""
    client = Client()
    run_id = resolve(client, run)
    if text == "-":
        text = _stdin()
    # A message that was cut off and is sent again has the same id, and is said once.
    after = client.post(f"/v1/runs/{run_id}/messages", {"text": text}, key=f"m-{os.urandom(8).hex()}")
    say(f"{run_id}: said; {_HEARS.get(str(after.get('waiting_on') or after['status']), _AT_ONCE)}")
    return 0


_AT_ONCE = "it hears it with its next request"
_HEARS = {
    "paused": "it is paused and hears it when it is resumed",
    "parked": "it is parked and hears it when it goes on",
    "quarantined": "it is quarantined and hears it when it is revived",
    "human": "it waits for an answer to its question, and hears it after that (see: onward questions)",
    "release": "it is held back and hears it when it is released",
}


def pause(run: str, *, reason: str) -> int:
    """Let a run begin nothing new."""
    client = Client()
    before = _found(client, run)
    run_id = str(before["run_id"])
    client.post(f"/v1/runs/{run_id}/pause", {"reason": reason}, repeatable=True)
    if before["status"] == "paused":
        say(f"{run_id} was paused already: {line(before.get('reason') or 'no reason given')}")
        return 0
    flying = sum(bool(call.get("started")) and call.get("outcome") is None for call in before.get("calls") or [])
    left = f"; {flying} of its calls still run and come to their end" if flying else ""
    say(f"{run_id} is paused{left}. It goes on with: onward resume {run_id}")
    return 0


def resume(run: str, *, add: Json) -> int:
    """Let a run go on, with higher limits where they are given."""
    client = Client()
    before = _found(client, run)
    run_id = str(before["run_id"])
    given = {name: more for name, more in add.items() if more is not None}
    # Limits would be raised twice: a request that was cut off is not repeated by itself.
    client.post(f"/v1/runs/{run_id}/resume", {"add": given}, repeatable=not given)
    if given:
        limits = client.get(f"/v1/runs/{run_id}")["limits"]
        say(f"{run_id}: " + ", ".join(f"the limit {name} is {limits[name]} now" for name in given))
    said = "was not paused or parked" if before["status"] in ("active", "waiting") else "goes on"
    say(f"{run_id} {said}")
    return 0


def revive(target: str, *, max_revivals: int | None) -> int:
    """Bring a run back: through the daemon, or, when none runs, in its files for the next one."""
    from onward.cli.inspection import find, run_named

    client = Client()
    if client.is_up() and (named := run_named(target)) is not None:
        run_id = resolve(client, named)
        body: Json = {} if max_revivals is None else {"max_revivals": max_revivals}
        revival = client.post(f"/v1/runs/{run_id}/revive", body, repeatable=True)["revival"]
        said = f"is revived (it was {line(revival['reason'])}) and goes on" if revival["ok"] else "is at work already"
        say(f"{run_id} {said}")
        return 0
    from onward.recovery import revive as revive_offline

    done = revive_offline(find(target), max_revivals=max_revivals)
    if done.ok:
        say(f"{done.run_id} is revived (it was {done.reason}); it goes on when the daemon starts: onward up")
        return 0
    refused = f"{line(done.run_id)} is not revived: {done.reason} ({line(done.detail)})"
    raise Refused(refused) if done.reason == "live" else Conflict(refused)


def cancel(run: str) -> int:
    """End a run for good."""
    client = Client()
    before = _found(client, run)
    run_id = str(before["run_id"])
    if before["status"] in ENDED and before["status"] != "cancelled":
        raise Conflict(f"{run_id} is over already: {before['status']}")
    after = client.post(f"/v1/runs/{run_id}/cancel", {}, repeatable=True)
    if before["status"] == "cancelled":
        say(f"{run_id} was cancelled already")
    elif after["status"] == "cancelled":
        say(f"{run_id} is cancelled")
    else:
        say(f"{run_id} is being cancelled: what it runs is ended. `onward wait {run_id}` waits for that")
    return 0


def _found(client: Client, run: str) -> Json:
    return client.get(f"/v1/runs/{resolve(client, run)}")


def _stdin() -> str:
    data = sys.stdin.buffer.read(MAX_STDIN_BYTES + 1)
    if len(data) > MAX_STDIN_BYTES:
        raise BadRequest("the message on stdin is too long; put it into a file of the workspace and say where")
    return data.decode("utf-8", "replace")
