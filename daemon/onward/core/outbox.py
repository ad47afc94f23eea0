"""Notifications that are owed: folded from the daemon's facts; a restart forgets none and repeats none. Pure."""

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field

from onward.core.records import Json
from onward.core.retry import doubled

FIRST_RETRY_S = 5.0
LONGEST_RETRY_S = 3600.0
GIVEN_UP_AFTER = 40
"""Attempts (about a day and a half), after which a target is left out for this notification."""
KEPT_IDS = 10_000
"""So many of those delivered are remembered."""


@dataclass(slots=True)
class Delivery:
    """One notification to one target. `attempts` are those of this process."""

    delivery_id: str
    notification: Json
    target: str
    attempts: int = 0


@dataclass(slots=True)
class Outbox:
    """What was queued and what was sent. Ids are `RUN.QUESTION`: the receiver can tell a repeated delivery by them."""

    known: dict[str, None] = field(default_factory=dict)
    owed: dict[tuple[str, str], Delivery] = field(default_factory=dict)

    def apply(self, fact: Json) -> None:
        """Take one fact; other types, and what makes no sense, are ignored."""
        delivery_id = fact.get("delivery_id")
        if not isinstance(delivery_id, str):
            return
        if fact.get("type") == "NotificationQueued" and _is_whole(fact):
            self.known[delivery_id] = None
            for target in fact["targets"]:
                self.owed[delivery_id, target] = Delivery(delivery_id, fact["notification"], target)
        elif fact.get("type") == "NotificationSent":
            self.owed.pop((delivery_id, str(fact.get("target"))), None)


def _is_whole(queued: Json) -> bool:
    """Whether somebody can be told of it, or was: then the notification itself may be gone."""
    notification, targets = queued.get("notification"), queued.get("targets")
    if not isinstance(notification, dict) or not isinstance(targets, list):
        return False
    named = notification.get("delivery_id") == queued["delivery_id"]
    return all(isinstance(target, str) for target in targets) and (named or not targets)


def kept_notifications(facts: Sequence[Json]) -> list[Json]:
    """Return, in order, the facts with what was delivered shortened to its id, the newest `KEPT_IDS` of these."""
    outbox = Outbox()
    for fact in facts:
        outbox.apply(fact)
    owed = {delivery_id for delivery_id, _ in outbox.owed}
    told = [name for name in outbox.known if name not in owed]
    shortened = dict.fromkeys(told[-KEPT_IDS:])
    kept: list[Json] = []
    for fact in facts:
        delivery_id = str(fact.get("delivery_id"))
        if fact.get("type") not in ("NotificationQueued", "NotificationSent") or delivery_id in owed:
            kept.append(fact)
        elif fact["type"] == "NotificationQueued" and delivery_id in shortened:
            del shortened[delivery_id]
            kept.append({**fact, "notification": {}, "targets": []})
    return kept


def delivery_id_of(question: Json) -> str:
    """Return the id of the notification of a question."""
    return f"{question['run_id']}.{question['interaction_id']}"


def notification_of(question: Json) -> Json:
    """Return what a person is told of a question."""
    names = ("run_id", "interaction_id", "kind", "prompt", "options", "agent", "asked_at", "expires_at", "advisory")
    return {"type": "question", "delivery_id": delivery_id_of(question), **{name: question[name] for name in names}}


def retry_in(attempts: int) -> float | None:
    """Return after how many seconds a failed delivery is repeated; None: not any more."""
    if attempts >= GIVEN_UP_AFTER:
        return None
    return doubled(FIRST_RETRY_S, LONGEST_RETRY_S, attempts)


def signature(secret: str, timestamp: int, body: bytes) -> str:
    """Return the value of the signature header: HMAC-SHA256 over `timestamp.body`, as `t=...,v1=...`.

    The receiver computes the same and refuses old timestamps.
    """
    mac = hmac.new(secret.encode(), b"%d." % timestamp + body, hashlib.sha256)
    return f"t={timestamp},v1={mac.hexdigest()}"
