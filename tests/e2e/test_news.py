"""The stream of all runs over the life and death of real daemons."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

import pytest

from tests.e2e.instances import Instance, shell

Event = tuple[str, str, dict[str, str]]


@contextmanager
def news(instance: Instance, after: str = "") -> Iterator[Iterator[Event]]:
    """Give the events of the stream behind `after`, as (id, event, data)."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(30)
        connection.connect(str(instance.home / "onward.sock"))
        asked = f"GET /v1/events?after={after} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
        connection.sendall(asked.encode())
        with connection.makefile("rb") as stream:
            yield events(stream)


def events(stream: BinaryIO) -> Iterator[Event]:
    fields: dict[str, str] = {}
    for line in stream:
        name, _, value = line.decode().strip().partition(": ")
        if name in ("id", "event", "data"):
            fields[name] = value
        elif fields and not name:
            yield fields["id"], fields["event"], json.loads(fields["data"])
            fields = {}


@pytest.mark.slow
def test_every_change_of_a_run_is_told_and_another_life_says_so(instance: Instance) -> None:
    with news(instance.start()) as told:
        at, kind, _ = next(told)
        assert kind == "resync"
        run_id = instance.run(shell("cat /dev/null"), {"fail": "context_overflow", "fail_times": 9})
        seen: list[str] = []
        while seen[-1:] != ["parked"]:
            at, kind, run = next(told)
            assert (kind, run["run_id"]) == ("run", run_id)
            seen.append(run["status"])
        assert seen[0] == "waiting"
        assert seen[-2:] == ["active", "parked"]
        instance.post(f"/v1/runs/{run_id}/cancel", {})
    instance.until_status(run_id, "cancelled")
    with news(instance, at) as told:
        statuses = [next(told)[2]["status"]]
        while statuses[-1] != "cancelled":
            statuses.append(next(told)[2]["status"])
    instance.kill()
    with news(instance.start(), at) as told:
        fresh, kind, _ = next(told)
        assert kind == "resync"
        assert fresh.partition(":")[0] != at.partition(":")[0]
