"""Anthropic's Messages API, through the official SDK."""

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, cast

from onward.native.models import anthropic_api as api
from onward.native.models.failures import Said
from onward.native.models.prices import Card
from onward.native.models.remote import NO_KEY, Endpoint, said_of
from onward.ports.model import ModelFailure, ModelRequest

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic


class AnthropicDialect:
    """Implements `onward.native.models.remote.Dialect`. Events are taken as JSON, so that nothing in them is lost."""

    failures = api.FAILURES

    def connect(self, endpoint: Endpoint) -> "AsyncAnthropic":
        import anthropic

        # No redirects: they would carry the conversation to where nobody configured. Retries are Onward's own.
        timeout = anthropic.Timeout(endpoint.inactivity_s, connect=endpoint.connect_s)
        return anthropic.AsyncAnthropic(
            api_key=endpoint.key or NO_KEY,
            base_url=endpoint.base_url,
            timeout=timeout,
            max_retries=0,
            http_client=anthropic.DefaultAsyncHttpxClient(timeout=timeout, follow_redirects=False),
        )

    def body(self, endpoint: Endpoint, request: ModelRequest, model: str, max_tokens: int | None) -> api.Json:
        return api.body_of(request, model, max_tokens or api.DEFAULT_OUTPUT_TOKENS)

    def repaired(self, body: api.Json, failure: ModelFailure) -> api.Json | None:
        told = str(failure)
        return api.without_thinking(body) if "thinking" in told or "signature" in told else None

    def output_tokens(self, card: Card) -> int:
        return min(card.max_output_tokens or api.DEFAULT_OUTPUT_TOKENS, api.LONGEST_OUTPUT_TOKENS)

    def collector(self) -> api.Collector:
        return api.Collector()

    async def stream(self, client: "AsyncAnthropic", body: api.Json) -> AsyncGenerator[api.Json]:
        from anthropic import AsyncStream

        path, events = "/v1/messages", AsyncStream[object]
        async with await client.post(path, cast_to=object, body=body, stream=True, stream_cls=events) as stream:
            async for event in stream:
                yield cast("api.Json", event)

    def said(self, error: Exception) -> Said | None:
        import anthropic
        import httpx2

        known = (anthropic.AnthropicError, httpx2.HTTPError, httpx2.StreamError, OSError, ValueError)
        return said_of(error, api.said_by) if isinstance(error, known) else None
