"""A question reaches a person who is not looking: at least once, signed, to nobody else."""

import hashlib
import hmac
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import anyio
import orjson
import pytest
from anyio.abc import SocketAttribute, SocketStream

from onward.config.notify import NotifySettings, WebhookSettings
from onward.core.outbox import GIVEN_UP_AFTER, LONGEST_RETRY_S, kept_notifications, retry_in
from onward.core.records import Json
from onward.supervisor.notify import NotDelivered, Notifier, post
from onward.testing.clocks import FakeClock
from onward.testing.memory_store import MemoryStore
from tests.store.worlds import store_at
from tests.support import eventually

SIGNING = "HOOK_SIGNING"
QUESTION: Json = {
    "run_id": "coder-1",
    "interaction_id": "q1",
    "kind": "permission",
    "prompt": "May the run do this?",
    "options": ["approve", "deny"],
    "agent": "coder",
    "asked_at": "2026-01-01T00:00:00.000000Z",
    "expires_at": None,
    "advisory": True,
}


@dataclass(slots=True)
class Receiver:
    """A webhook on loopback. `statuses` are answered in turn, the last one from then on."""

    statuses: list[int]
    port: int = 0
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)

    def has_got(self, number: int) -> bool:
        return len(self.got) == number

    async def handle(self, stream: SocketStream) -> None:
        async with stream:
            data = b""
            while b"\r\n\r\n" not in data:
                data += await stream.receive()
            head, _, body = data.partition(b"\r\n\r\n")
            headers = dict(line.lower().split(": ", 1) for line in head.decode().split("\r\n")[1:])
            while len(body) < int(headers["content-length"]):
                body += await stream.receive()
            self.got.append((headers, body))
            status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
            location = f"location: http://127.0.0.1:{self.port}/elsewhere\r\n" if status == 302 else ""
            answer = f"HTTP/1.1 {status} x\r\n{location}content-length: 0\r\nconnection: close\r\n\r\n"
            await stream.send(answer.encode())


@asynccontextmanager
async def receiving(*statuses: int) -> AsyncIterator[Receiver]:
    receiver = Receiver(list(statuses))
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    receiver.port = listener.extra(SocketAttribute.local_port)  # noqa: S610  # no Django here
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, receiver.handle)
        yield receiver
        tasks.cancel_scope.cancel()
    await listener.aclose()


def settings_for(receiver: Receiver, **more: object) -> NotifySettings:
    webhook = WebhookSettings(url=f"http://127.0.0.1:{receiver.port}/hook", secret_env=SIGNING)
    return NotifySettings.model_validate({"webhooks": {"team": webhook}, "allow_private": ("127.0.0.1",), **more})


@asynccontextmanager
async def serving(notifier: Notifier) -> AsyncIterator[Notifier]:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(notifier.serve)
        yield notifier
        tasks.cancel_scope.cancel()


async def test_a_question_is_told_once_and_signed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The receiver can check who sent it, and know a repetition by its id; looking again sends nothing."""
    monkeypatch.setenv(SIGNING, "s3cret-value")
    async with receiving(200) as receiver:
        store = MemoryStore(FakeClock(), tmp_path)
        notifier = Notifier(store, FakeClock(), settings_for(receiver))
        async with serving(notifier):
            notifier.look([QUESTION])
            notifier.look([QUESTION])
            await eventually(lambda: len([f for f in store.noted if f["type"] == "NotificationSent"]) == 1)
            notifier.look([QUESTION])

        again = Notifier(store, FakeClock(), settings_for(receiver))
        async with serving(again):
            again.look([QUESTION])
            await anyio.wait_all_tasks_blocked()

    [(headers, body)] = receiver.got
    stamp, mac = (part.split("=", 1)[1] for part in headers["onward-signature"].split(","))
    assert headers["onward-delivery"] == "coder-1.q1"
    assert hmac.new(b"s3cret-value", f"{stamp}.".encode() + body, hashlib.sha256).hexdigest() == mac
    assert orjson.loads(body)["prompt"] == "May the run do this?"


async def test_a_delivery_that_fails_is_repeated_after_a_restart_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was queued is owed until it was accepted, whatever happens to the daemon."""
    monkeypatch.setenv(SIGNING, "s3cret-value")
    async with receiving(500, 200) as receiver:
        clock = FakeClock()
        store = MemoryStore(clock, tmp_path)
        first = Notifier(store, clock, settings_for(receiver))
        async with serving(first):
            first.look([QUESTION])
            await eventually(lambda: clock.sleepers == 1)

        async with serving(Notifier(store, FakeClock(), settings_for(receiver))):
            await eventually(lambda: len(receiver.got) == 2)

    assert [headers["onward-delivery"] for headers, _ in receiver.got] == ["coder-1.q1"] * 2


async def test_questions_are_told_as_they_come_not_only_those_of_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The notifier waits for the next one, however many came before."""
    monkeypatch.setenv(SIGNING, "s3cret-value")
    async with receiving(200) as receiver:
        notifier = Notifier(MemoryStore(FakeClock(), tmp_path), FakeClock(), settings_for(receiver))
        async with serving(notifier):
            for number in range(1, 4):
                await anyio.wait_all_tasks_blocked()
                notifier.look([{**QUESTION, "interaction_id": f"q{number}"}])
                await eventually(partial(receiver.has_got, number))

    assert [headers["onward-delivery"] for headers, _ in receiver.got] == ["coder-1.q1", "coder-1.q2", "coder-1.q3"]


async def test_a_question_is_told_though_nothing_can_be_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk is when a person is needed most; at worst the next daemon tells it again, under the same id."""
    monkeypatch.setenv(SIGNING, "s3cret-value")
    async with receiving(200) as receiver:
        store = MemoryStore(FakeClock(), tmp_path)
        store.full = True
        notifier = Notifier(store, FakeClock(), settings_for(receiver))
        async with serving(notifier):
            notifier.look([QUESTION])
            await eventually(partial(receiver.has_got, 1))
            notifier.look([QUESTION])
            await anyio.wait_all_tasks_blocked()

    assert len(receiver.got) == 1


QUEUED: Json = {"type": "NotificationQueued", "delivery_id": "x.q1", "targets": ["team"], "notification": {}}


@pytest.mark.parametrize(
    "fact",
    [
        QUEUED,
        {**QUEUED, "targets": None},
        {**QUEUED, "targets": [1]},
        {**QUEUED, "targets": "team"},
        {**QUEUED, "notification": []},
        {**QUEUED, "delivery_id": 5, "notification": {"delivery_id": 5}},
        {**QUEUED, "delivery_id": ["x"]},
        {"type": "NotificationQueued"},
        {"type": "NotificationSent"},
        {"type": "NotificationSent", "delivery_id": {"x": 1}, "target": []},
    ],
)
async def test_a_fact_that_makes_no_sense_costs_only_itself(
    fact: Json, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is told of it, and what comes next is told; the file can be made smaller too."""
    monkeypatch.setenv(SIGNING, "s3cret-value")
    async with receiving(200) as receiver:
        store = MemoryStore(FakeClock(), tmp_path)
        store.noted.append(fact)
        notifier = Notifier(store, FakeClock(), settings_for(receiver))
        async with serving(notifier):
            notifier.look([QUESTION])
            await eventually(partial(receiver.has_got, 1))

    assert [headers["onward-delivery"] for headers, _ in receiver.got] == ["coder-1.q1"]
    assert len(kept_notifications([fact, {"type": "Other"}])) <= 2


async def test_facts_that_cannot_be_read_cost_a_repetition_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A damaged daemon.jsonl keeps nobody from being told."""
    monkeypatch.setenv(SIGNING, "s3cret-value")
    (tmp_path / "runs" / "daemon.jsonl").mkdir(parents=True)
    async with receiving(200) as receiver, store_at(tmp_path / "runs") as store:
        notifier = Notifier(store, FakeClock(), settings_for(receiver))
        async with serving(notifier):
            notifier.look([QUESTION])
            await eventually(partial(receiver.has_got, 1))


async def test_a_target_that_fails_in_a_way_nobody_thought_of_is_tried_again(tmp_path: Path) -> None:
    """The border of one delivery: neither the daemon nor the other targets know of it."""
    clock = FakeClock()
    store = MemoryStore(clock, tmp_path)
    impossible = NotifySettings(hook=("a\0b",))
    async with serving(Notifier(store, clock, impossible)) as notifier:
        notifier.look([QUESTION])
        await eventually(lambda: clock.sleepers == 1)
    assert not [fact for fact in store.noted if fact["type"] == "NotificationSent"]


async def test_a_redirect_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A redirect could lead inside; it counts as a failure."""
    monkeypatch.setenv(SIGNING, "s3cret-value")
    async with receiving(302) as receiver:
        settings = settings_for(receiver)
        with pytest.raises(NotDelivered, match="302"):
            await post(settings.webhooks["team"], settings, {"delivery_id": "x.q1"})

    assert len(receiver.got) == 1


@pytest.mark.parametrize("host", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "[::1]", "localhost"])
async def test_a_private_address_is_refused_unless_it_is_listed(host: str) -> None:
    """A URL in the configuration does not reach the machine's own services by accident."""
    webhook = WebhookSettings(url=f"http://{host}:9/x")

    with pytest.raises(NotDelivered, match="allow_private"):
        await post(webhook, NotifySettings(), {"delivery_id": "x.q1"})


async def test_a_hook_gets_the_question_on_its_input_and_nothing_of_our_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No shell, no argument from outside, no secret."""
    monkeypatch.setenv("SOME_API_KEY", "never-to-be-seen")
    told = tmp_path / "told"
    program = f"import os, sys; open({str(told)!r}, 'w').write(sys.stdin.read() + str(dict(os.environ)))"
    settings = NotifySettings(hook=(sys.executable, "-c", program))
    store = MemoryStore(FakeClock(), tmp_path)
    notifier = Notifier(store, FakeClock(), settings)

    async with serving(notifier):
        notifier.look([QUESTION])
        await eventually(lambda: any(fact["type"] == "NotificationSent" for fact in store.noted))

    assert '"interaction_id":"q1"' in told.read_text()
    assert "never-to-be-seen" not in told.read_text()


def test_repetitions_grow_apart_and_end() -> None:
    """A dead receiver costs little, and not for ever."""
    delays = [retry_in(attempts) for attempts in range(1, GIVEN_UP_AFTER)]

    assert delays[0] == 5.0
    assert delays == sorted(delays, key=lambda delay: delay or 0.0)
    assert delays[-1] == LONGEST_RETRY_S
    assert retry_in(GIVEN_UP_AFTER) is None
