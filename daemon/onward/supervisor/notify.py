"""Telling a person that a question waits: webhooks and a command, from a durable outbox."""

import os
import socket
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from ipaddress import ip_address
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import orjson
import structlog

from onward.config.notify import NotifySettings, WebhookSettings
from onward.core.outbox import Delivery, Outbox, delivery_id_of, notification_of, retry_in, signature
from onward.core.records import Json
from onward.errors import OnwardError, StoreError
from onward.native.calls import base_environment
from onward.ports.clock import Clock
from onward.ports.store import RunStore

log = structlog.get_logger()

HOOK = "hook"


class NotDelivered(OnwardError):
    """A delivery failed; the message says why. It is repeated."""

    code = "not-delivered"


Send = Callable[[Json], Awaitable[None]]


class Notifier:
    """Lives as long as the daemon: `look` is cheap and may be called at any time, `serve` delivers."""

    def __init__(self, store: RunStore, clock: Clock, settings: NotifySettings) -> None:
        self._store = store
        self._clock = clock
        self._outbox = Outbox()
        self._targets = targets_of(settings)
        self._wake = anyio.Event()
        self._seen: dict[str, Json] = {}

    def look(self, questions: Iterable[Json]) -> None:
        """See which questions are open; those that were not told yet will be."""
        if not self._targets:
            return
        asked = {delivery_id_of(question): question for question in questions}
        new = {name: question for name, question in asked.items() if name not in self._outbox.known}
        if new:
            self._seen |= new
            self._wake.set()

    async def serve(self) -> None:
        """Deliver for ever. What fails is repeated with growing delays, each target for itself.

        Never raises: a daemon that can tell nobody works on.
        """
        if not self._targets:
            return
        await self._remember()
        async with anyio.create_task_group() as tasks:
            for owed in list(self._outbox.owed.values()):
                tasks.start_soon(self._deliver, owed)
            while True:
                await self._wake.wait()
                self._wake = anyio.Event()
                seen, self._seen = self._seen, {}
                for question in seen.values():
                    for owed in await self._queue(question):
                        tasks.start_soon(self._deliver, owed)

    async def _remember(self) -> None:
        try:
            facts = await self._store.facts()
        except StoreError as error:
            log.error("open questions are told again: nobody knows which were", error=str(error))
            return
        for fact in facts:
            self._outbox.apply(fact)

    async def _queue(self, question: Json) -> list[Delivery]:
        delivery_id = delivery_id_of(question)
        if delivery_id in self._outbox.known:
            return []
        fact = {
            "type": "NotificationQueued",
            "delivery_id": delivery_id,
            "notification": notification_of(question),
            "targets": sorted(self._targets),
        }
        try:
            await self._store.append_fact(**fact)
        except StoreError as error:
            # It is told all the same: nothing is lost if this daemon dies, as the next one looks at the question too.
            log.warning("notification not noted; it may be repeated", delivery_id=delivery_id, error=str(error))
        self._outbox.apply(fact)
        return [self._outbox.owed[delivery_id, target] for target in self._targets]

    async def _deliver(self, owed: Delivery) -> None:
        delivery_id = owed.delivery_id
        send = self._targets.get(owed.target)
        while send is not None:
            owed.attempts += 1
            try:
                await send(owed.notification)
            except Exception as error:  # noqa: BLE001  # the border of one delivery: all others go on
                delay_s = retry_in(owed.attempts)
                reason = str(error) if isinstance(error, NotDelivered) else repr(error)
                log.warning("notification not delivered", delivery_id=delivery_id, target=owed.target, error=reason)
                if delay_s is None:
                    break
                await self._clock.sleep(delay_s)
            else:
                log.info("notification delivered", delivery_id=delivery_id, target=owed.target)
                break
        sent = {"type": "NotificationSent", "delivery_id": delivery_id, "target": owed.target}
        try:
            await self._store.append_fact(**sent, attempts=owed.attempts)
        except StoreError as error:
            log.warning("delivery not noted; it may be repeated", delivery_id=delivery_id, error=str(error))


def targets_of(settings: NotifySettings) -> dict[str, Send]:
    """Return how each target is told, by its name."""
    targets: dict[str, Send] = {
        name: partial(post, webhook, settings) for name, webhook in sorted(settings.webhooks.items())
    }
    if settings.hook:
        targets[HOOK] = partial(run_hook, settings)
    return targets


async def post(webhook: WebhookSettings, settings: NotifySettings, notification: Json) -> None:
    """Send a notification by POST. Redirects are not followed.

    Raises:
        NotDelivered: It was not accepted with a status of 2xx.
    """
    # In a thread as a whole: the library, the certificates and the name are looked up with blocking calls.
    await anyio.to_thread.run_sync(_post, webhook, settings, notification, abandon_on_cancel=True)


def _post(webhook: WebhookSettings, settings: NotifySettings, notification: Json) -> None:
    import httpx2

    _check_address(webhook.url, settings)
    body = orjson.dumps(notification)
    headers = {"content-type": "application/json", "onward-delivery": str(notification["delivery_id"])}
    if webhook.secret_env:
        secret = os.environ.get(webhook.secret_env)
        if not secret:
            raise NotDelivered(f"the variable {webhook.secret_env!r} with the webhook's secret is not set")
        headers["onward-signature"] = signature(secret, int(time.time()), body)
    try:
        with httpx2.Client(timeout=settings.timeout_s, follow_redirects=False, trust_env=False) as client:
            answer = client.post(webhook.url, content=body, headers=headers)
    except httpx2.HTTPError as error:
        raise NotDelivered(f"{type(error).__name__}: {error}") from error
    if not answer.is_success:
        raise NotDelivered(f"the webhook answered {answer.status_code}")


def _check_address(url: str, settings: NotifySettings) -> None:
    """Refuse a host at a private address that is not listed: nobody is to reach inside through a name."""
    host = urlsplit(url).hostname or ""
    if host in settings.allow_private:
        return
    try:
        found = socket.getaddrinfo(host, None, proto=socket.IPPROTO_TCP)
    except OSError as error:
        raise NotDelivered(f"the host {host!r} has no address: {error}") from error
    for item in found:
        address = ip_address(str(item[4][0]).partition("%")[0])
        if not address.is_global:
            raise NotDelivered(f"{host!r} lies at {address}; list it in notify.allow_private to allow that")


async def run_hook(settings: NotifySettings, notification: Json) -> None:
    """Start the command with the notification on its input.

    Raises:
        NotDelivered: It could not be started, failed, or took too long.
    """
    try:
        with anyio.fail_after(settings.timeout_s):
            done = await anyio.run_process(
                list(settings.hook),
                input=orjson.dumps(notification),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=False,
                env=base_environment(os.environ),
                start_new_session=True,
            )
    except OSError as error:
        raise NotDelivered(f"the hook could not be started: {error.strerror}") from error
    except TimeoutError:
        raise NotDelivered(f"the hook took longer than {settings.timeout_s:g} s") from None
    if done.returncode != 0:
        raise NotDelivered(f"the hook ended with {done.returncode}")
