"""OpenAI's chat completions, through the official SDK; the same for every server that speaks them."""

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, cast

from onward.native.models import openai_api as api
from onward.native.models.failures import Said
from onward.native.models.openai_stream import Collector
from onward.native.models.prices import Card
from onward.native.models.remote import NO_KEY, Endpoint, said_of
from onward.ports.model import ModelFailure, ModelRequest

if TYPE_CHECKING:
    from openai import AsyncOpenAI


class OpenAIDialect:
    """Implements `onward.native.models.remote.Dialect`. Chunks are taken as JSON, because other servers send others."""

    failures = api.FAILURES

    def connect(self, endpoint: Endpoint) -> "AsyncOpenAI":
        import openai

        # No redirects: they would carry the conversation to where nobody configured. Retries are Onward's own.
        timeout = openai.Timeout(endpoint.inactivity_s, connect=endpoint.connect_s)
        return openai.AsyncOpenAI(
            api_key=endpoint.key or NO_KEY,
            base_url=endpoint.base_url,
            timeout=timeout,
            max_retries=0,
            http_client=openai.DefaultAsyncHttpxClient(timeout=timeout, follow_redirects=False),
        )

    def body(self, endpoint: Endpoint, request: ModelRequest, model: str, max_tokens: int | None) -> api.Json:
        return api.body_of(request, model, max_tokens, is_own_server=endpoint.base_url is not None)

    def repaired(self, body: api.Json, failure: ModelFailure) -> api.Json | None:
        return api.repaired(body, str(failure))

    def output_tokens(self, card: Card) -> None:
        return None

    def collector(self) -> Collector:
        return Collector()

    async def stream(self, client: "AsyncOpenAI", body: api.Json) -> AsyncGenerator[api.Json]:
        from openai import AsyncStream

        path, chunks = "/chat/completions", AsyncStream[object]
        async with await client.post(path, cast_to=object, body=body, stream=True, stream_cls=chunks) as stream:
            async for chunk in stream:
                yield cast("api.Json", chunk)

    def said(self, error: Exception) -> Said | None:
        import httpx2
        import openai

        known = (openai.OpenAIError, httpx2.HTTPError, httpx2.StreamError, OSError, ValueError)
        return said_of(error, api.said_by) if isinstance(error, known) else None
