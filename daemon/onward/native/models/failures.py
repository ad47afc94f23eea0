"""Why a model request failed, from what a server or the network said: tables that both providers share. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import parsedate_to_datetime

from onward.core.text import clean
from onward.ports.model import FailureClass

LONGEST_MESSAGE = 400
EPOCH_FROM_S = 1e9
"""A number in a header from here on is a point in time, not a duration; from `EPOCH_FROM_MS` on it is in ms."""
EPOCH_FROM_MS = 1e12

# How servers say that a conversation is too long: Anthropic, OpenAI, vLLM, llama.cpp, Ollama, Gemini, xAI, Mistral.
TOO_LONG = re.compile(
    r"prompt is too long|exceed context limit|context.?length.?exceeded|maximum context length|maximum model length"
    r"|exceeds? the (?:available |model'?s? )?(?:maximum )?context|exceed_context_size|context (?:size|length|window) "
    r"(?:has been |was )?exceeded|context window.{0,40}(?:exceed|too)|input is too long|request_too_large|"
    r"request exceeds the maximum size|input token count.{0,40}exceeds|maximum prompt length|too large for model|"
    r"longer than the maximum|context shift is disabled|context the overflows|reduce the length of the messages|"
    r"input length.{0,40}exceed",
    re.IGNORECASE | re.DOTALL,
)
NO_MONEY = re.compile(
    r"insufficient_quota|credit balance is too low|exceeded your current quota|billing|insufficient (?:credits|balance"
    r"|funds)|payment required|spend(?:ing)?[ _]limit|usage limits?\b.{0,60}regain|out of credits",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What came instead of a turn.

    `status` None: no HTTP answer. `kind`: the names the body gives the error. `sent`: the request was on its way, and
    nothing tells that the server refused it.
    """

    status: int | None = None
    kind: str = ""
    message: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    sent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One row of a table: all that is given has to fit. `kinds` are words of the error's names."""

    failure: FailureClass
    statuses: frozenset[int] = frozenset()
    kinds: frozenset[str] = frozenset()
    text: re.Pattern[str] | None = None

    def fits(self, said: Said) -> bool:
        if self.statuses and said.status not in self.statuses:
            return False
        if self.kinds and self.kinds.isdisjoint(said.kind.split()):
            return False
        return self.text is None or bool(self.text.search(f"{said.kind} {said.message}"))


def classify(table: Sequence[Rule], said: Said) -> FailureClass:
    """Return the class of the first rule that fits; without one the status alone decides."""
    for rule in table:
        if rule.fits(said):
            return rule.failure
    if said.status is None:
        return FailureClass.NETWORK
    return FailureClass.SERVER_ERROR if said.status >= 500 or said.status < 300 else FailureClass.INVALID_REQUEST


def retry_after_s(headers: Mapping[str, str], now: datetime) -> float | None:
    """Return how many seconds the provider asks to wait, if it says so: seconds, a date, or days.

    Args:
        headers: Of the answer; names in lower case.
        now: The aware time at which it came.
    """
    if (ms := _number(headers.get("retry-after-ms"))) is not None:
        return _sane(ms / 1000)
    if (told := headers.get("retry-after")) is not None:
        return _sane(_seconds(told, now))
    resets = [
        _seconds(value, now) for name, value in headers.items() if _is_reset(name) and not _has_room(name, headers)
    ]
    return _sane(max((reset for reset in resets if reset is not None), default=None))


def message_of(said: Said, secrets: Iterable[str]) -> str:
    """Return one short line for people, without keys: what was said, with its status and name."""
    text = masked(" ".join(clean(said.message).split()), secrets) or "no reason was given"
    name = " ".join(dict.fromkeys(str(part) for part in (said.status, *said.kind.split()) if part is not None))
    shown = text if len(text) <= LONGEST_MESSAGE else text[:LONGEST_MESSAGE] + "…"
    return f"{shown} ({masked(name, secrets)})" if name else shown


def masked(text: str, secrets: Iterable[str]) -> str:
    """Return text in which no secret stands."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, "[key]")
    return text


def _is_reset(name: str) -> bool:
    # x-ratelimit-reset (OpenRouter), x-ratelimit-reset-tokens (OpenAI), anthropic-ratelimit-requests-reset.
    return name.startswith("x-ratelimit-reset") or (name.startswith("anthropic-ratelimit-") and name.endswith("-reset"))


def _has_room(name: str, headers: Mapping[str, str]) -> bool:
    """Whether the counter that this reset belongs to is known not to be the one that ran out."""
    left = _number(headers.get(name.replace("reset", "remaining")))
    return left is not None and left > 0


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None


_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(days?|d|hours?|h|minutes?|min|ms|m|seconds?|s)", re.IGNORECASE)
_UNIT_S = {"d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0}


def _seconds(text: str, now: datetime) -> float | None:
    """Return the seconds that a header's value means: a number, `1h2m3.5s`, `2 days`, a date, a point in time."""
    text = text.strip()
    if (number := _number(text)) is not None:
        if number >= EPOCH_FROM_S:
            return (number / 1000 if number >= EPOCH_FROM_MS else number) - now.timestamp()
        return number
    if _DURATION.sub("", text).strip(" ,") == "" and text:
        return sum(
            float(amount) * (0.001 if unit.lower() == "ms" else _UNIT_S[unit[0].lower()])
            for amount, unit in _DURATION.findall(text)
        )
    for parse in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            moment = parse(text)
        except ValueError:
            continue
        return (moment - now).total_seconds() if moment.tzinfo else None
    return None


def _sane(seconds: float | None) -> float | None:
    if seconds is None or not -1e9 < seconds < 1e9:
        return None
    return max(seconds, 0.0)
