"""A model behind an API: one connection a provider, shared by all runs, and what every request to it has in common."""

from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Protocol

import anyio
import anyio.to_thread
import structlog

from onward.core.conversation import Block
from onward.core.text import clean
from onward.native.models.failures import Rule, Said, classify, message_of, retry_after_s
from onward.native.models.prices import Card, cost_usd, estimate, prompt_tokens, tokens_of
from onward.ports.clock import Clock
from onward.ports.model import FailureClass, ModelFailure, ModelRequest, ModelTurn

log = structlog.get_logger()

Json = dict[str, Any]

NO_KEY = "none"
"""What a server gets that needs no key; the SDKs want one."""
LEAST_OUTPUT_TOKENS = 1024
LONGEST_GATE_S = 60.0
"""For how long others are not even sent after one request met a rate limit; a longer wait is each run's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where a provider is and how it is to be talked to. `base_url` None: where its SDK finds it."""

    name: str
    base_url: str | None = None
    key: str | None = field(default=None, repr=False)
    concurrency: int = 16
    connect_s: float = 10.0
    inactivity_s: float = 300.0
    max_output_tokens: int | None = None

    @property
    def secrets(self) -> tuple[str, ...]:
        return (self.key,) if self.key else ()


class Collector(Protocol):
    """What comes out of one stream."""

    @property
    def whole(self) -> bool: ...
    @property
    def content(self) -> list[Block]: ...
    @property
    def stop_reason(self) -> str: ...
    @property
    def usage(self) -> Json: ...

    def add(self, event: Json) -> str | None: ...
    def failed(self) -> Said | None: ...


class Dialect(Protocol):
    """One provider's API, through its SDK."""

    failures: tuple[Rule, ...]

    def connect(self, endpoint: Endpoint) -> Any:
        """Return the SDK's client; imports the SDK, so that it is called in a thread."""
        ...

    def body(self, endpoint: Endpoint, request: ModelRequest, model: str, max_tokens: int | None) -> Json: ...

    def repaired(self, body: Json, failure: ModelFailure) -> Json | None:
        """Return the body without the optional part that the server refused, or None."""
        ...

    def output_tokens(self, card: Card) -> int | None:
        """Return how long an answer may be where the configuration says nothing; None: as the server likes."""
        ...

    def collector(self) -> Collector: ...

    def stream(self, client: Any, body: Json) -> AsyncGenerator[Json]:
        """Send a request; yields its events. Raises what `said` knows."""
        ...

    def said(self, error: Exception) -> Said | None:
        """Return what an exception of the SDK or the network says; None for any other, which is a bug."""
        ...


class Connection:
    """One provider: its client, made at the first request, and how many requests are out."""

    def __init__(self, endpoint: Endpoint, dialect: Dialect, clock: Clock) -> None:
        self.endpoint = endpoint
        self.dialect = dialect
        self.clock = clock
        self.gates: dict[str, float] = {}
        self._limiter = anyio.CapacityLimiter(endpoint.concurrency)
        self._lock = anyio.Lock()
        self._client: Any = None

    async def client(self) -> Any:
        async with self._lock:
            if self._client is None:
                self._client = await anyio.to_thread.run_sync(self.dialect.connect, self.endpoint)
        return self._client

    @property
    def slot(self) -> anyio.CapacityLimiter:
        """Held by a request from its sending to the end of its answer."""
        return self._limiter

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.close()
            self._client = None


class RemoteModel:
    """Implements `onward.ports.model.Model` for one model of a provider."""

    def __init__(self, connection: Connection, name: str, card: Card) -> None:
        self.provider = connection.endpoint.name
        self.name = name
        self.window_tokens = card.window_tokens
        self._connection = connection
        self._card = card
        self._refused: list[str] = []
        """What the server said to the optional parts that it does not take: they are left out at once from then on."""

    def estimate(self, request: ModelRequest) -> dict[str, float]:
        return estimate(request, self._card.price)

    async def infer(self, request: ModelRequest, on_delta: Callable[[str], None] | None = None) -> ModelTurn:
        self._check_gate()
        body = self._body(request)
        async with self._connection.slot:
            try:
                return await self._ask(request, body, on_delta)
            except ModelFailure as failure:
                other = self._repaired(body, failure)
                if other is None:
                    raise
                log.info("request repaired", provider=self.provider, model=self.name, refused=str(failure))
            return await self._ask(request, other, on_delta)

    async def _ask(self, request: ModelRequest, body: Json, on_delta: Callable[[str], None] | None) -> ModelTurn:
        dialect = self._connection.dialect
        collector = dialect.collector()
        began = False
        try:
            client = await self._connection.client()
            async with aclosing(dialect.stream(client, body)) as events:
                async for event in events:
                    if (piece := self._added(collector, event)) and on_delta is not None:
                        on_delta(clean(piece))
                    began = began or collector.failed() is None
        except ModelFailure:
            raise
        except Exception as error:
            if (said := dialect.said(error)) is None:
                raise
            # The chain is cut, because the SDK's own exception may show what the server echoed: the key.
            raise self._failure(said, began) from None
        if (said := collector.failed()) is not None:
            raise self._failure(said, began)
        if not collector.whole:
            raise self._failure(Said(message="the stream ended before the answer was whole", sent=True))
        return self._turn(request, collector)

    def _added(self, collector: Collector, event: Json) -> str | None:
        try:
            return collector.add(event)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            text = f"the server sent what is no part of an answer ({type(error).__name__})"
            raise self._failure(Said(status=200, message=text, sent=True)) from error

    def _turn(self, request: ModelRequest, collector: Collector) -> ModelTurn:
        content, usage = collector.content, collector.usage
        if not usage:
            counts = {"input_tokens": prompt_tokens(request), "output_tokens": tokens_of(content)}
            usage = {**counts, "estimated": True}
        return ModelTurn(
            content=content,
            stop_reason=collector.stop_reason,
            usage=usage,
            cost_usd=cost_usd(usage, self._card.price),
        )

    def _body(self, request: ModelRequest) -> Json:
        endpoint, dialect = self._connection.endpoint, self._connection.dialect
        max_tokens = endpoint.max_output_tokens or dialect.output_tokens(self._card)
        if max_tokens is not None and self.window_tokens is not None:
            room = self.window_tokens - prompt_tokens(request)
            max_tokens = max(min(max_tokens, room), min(max_tokens, LEAST_OUTPUT_TOKENS))
        body = dialect.body(endpoint, request, self.name, max_tokens)
        for message in self._refused:
            known = ModelFailure(FailureClass.INVALID_REQUEST, message)
            body = dialect.repaired(body, known) or body
        return body

    def _repaired(self, body: Json, failure: ModelFailure) -> Json | None:
        if failure.failure is not FailureClass.INVALID_REQUEST:
            return None
        other = self._connection.dialect.repaired(body, failure)
        if other is not None and str(failure) not in self._refused:
            self._refused.append(str(failure))
        return other

    def _failure(self, said: Said, began: bool = False) -> ModelFailure:
        endpoint, dialect = self._connection.endpoint, self._connection.dialect
        failure = classify(dialect.failures, said)
        wait_s = retry_after_s(said.headers, self._connection.clock.now())
        if failure is FailureClass.RATE_LIMITED and wait_s:
            self._connection.gates[self.name] = self._connection.clock.monotonic() + min(wait_s, LONGEST_GATE_S)
        message = f"{self.provider}/{self.name}: {message_of(said, endpoint.secrets)}"
        return ModelFailure(failure, message, wait_s, charged=said.sent or began)

    def _check_gate(self) -> None:
        """Send nothing into a rate limit that another run has just met; the wait is this run's own and is journaled."""
        left_s = self._connection.gates.get(self.name, 0.0) - self._connection.clock.monotonic()
        if left_s > 0:
            text = f"{self.provider}/{self.name}: not sent, because another request met the rate limit"
            raise ModelFailure(FailureClass.RATE_LIMITED, text, left_s)


def said_of(error: Exception, said_by: Callable[[object], tuple[str, str]]) -> Said:
    """Return what an SDK's exception says. Both SDKs have the same attributes.

    Args:
        error: The exception.
        said_by: Finds names and message in the body of an error.
    """
    response = getattr(error, "response", None)
    items: Iterable[tuple[str, str]] = response.headers.items() if response is not None else ()
    kind, message = said_by(getattr(error, "body", None))
    return Said(
        status=getattr(error, "status_code", None) or (response.status_code if response is not None else None),
        kind=kind,
        message=message or _cause(error),
        headers={name.lower(): value for name, value in items},
        sent=response is None and _was_sent(error),
    )


def _was_sent(error: BaseException | None) -> bool:
    """Whether the network failed behind a request, and not before it."""
    import httpx2

    while error is not None:
        if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout | httpx2.ProxyError):
            return False
        if isinstance(error, httpx2.TransportError):
            return True
        error = error.__cause__
    return False


def _cause(error: BaseException) -> str:
    """Return the innermost reason: the SDKs say only "Connection error."."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
