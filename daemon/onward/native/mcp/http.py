"""A server at a streamable HTTP endpoint: the SDK's transport over a client that tells what became of each request."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from types import TracebackType
from typing import Any, Self

import httpx2
from anyio import to_thread
from mcp_types import INTERNAL_ERROR

from mcp.client import Transport
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from onward.core.vocabulary import Needs
from onward.native.mcp import sending
from onward.native.mcp.link import MAX_MESSAGE_BYTES, Link
from onward.native.mcp.place import Place, server_headers
from onward.native.mcp.settings import ServerSettings

CONNECT_TIMEOUT_S = 15.0
SILENCE_MARGIN_S = 30.0
"""The connection may stay silent for so much longer than a call: the call's own timeout comes first."""

_NEVER_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)
_SESSION_HEADER = "mcp-session-id"


@asynccontextmanager
async def http_transport(
    settings: ServerSettings, place: Place, link: Link
) -> AsyncGenerator[tuple[Any, "WatchedStream"]]:
    """Open a session at the endpoint; closed at the end, the server's side of it too where it answers.

    Raises:
        Unavailable: A variable that a header is made of is not set.
    """
    # In a thread: it reads the certificates of all authorities.
    make = partial(TellingClient, link, server_headers(settings, place), settings.timeout_s + SILENCE_MARGIN_S)
    async with await to_thread.run_sync(make) as client:
        transport: Transport = streamable_http_client(
            settings.url or "", http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES
        )
        async with transport as (incoming, outgoing):
            yield incoming, WatchedStream(outgoing)


class WatchedStream:
    """The SDK's write stream; a call that passes it is on its way."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def send(self, item: SessionMessage, /) -> None:
        sending.begin()
        await self._inner.send(item)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._inner.__aexit__(kind, error, trace)


class TellingClient(httpx2.AsyncClient):
    """An HTTP client in which one request that fails is one call that fails, not the end of the session.

    Left to itself the SDK ends all calls of a session when one connection breaks. Here a request that got no answer is
    answered in the server's place, and its call is told whether it can have been carried out.
    """

    def __init__(self, link: Link, headers: Mapping[str, str], silence_s: float) -> None:
        super().__init__(headers=dict(headers), timeout=httpx2.Timeout(CONNECT_TIMEOUT_S, read=silence_s))
        self._link = link

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        try:
            response = await super().send(request, **options)
        except httpx2.TransportError as error:
            if request.method != "POST":
                raise
            return self._unanswered(request, error)
        if request.method == "POST":
            self._look_at(request, response)
        return response

    def _unanswered(self, request: httpx2.Request, error: httpx2.TransportError) -> httpx2.Response:
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        call = sending.current.get()
        if call is not None and isinstance(error, _NEVER_SENT):
            call.refused = f"it could not be reached ({what})"
        elif call is not None:
            call.cut = f"the connection broke ({what})"
        self._link.reason, self._link.needs = f"it cannot be reached ({what})", Needs.NETWORK
        told = {"jsonrpc": "2.0", "id": None, "error": {"code": INTERNAL_ERROR, "message": what}}
        return httpx2.Response(503, json=told, request=request)

    def _look_at(self, request: httpx2.Request, response: httpx2.Response) -> None:
        status, call = response.status_code, sending.current.get() or sending.Sending()
        is_json = response.headers.get("content-type", "").lower().startswith("application/json")
        if is_json:
            response.stream = Bounded(response.stream)
        if status in (401, 403):
            call.refused = f"it refused the request (HTTP {status})"
            self._link.reason = f"it refused the request (HTTP {status}); is the value in headers_from right?"
            self._link.needs = Needs.KEY
        elif status == 404 and _SESSION_HEADER in request.headers:
            call.refused = "it had forgotten the session"
            self._link.end("it had forgotten the session")
        elif status >= 500 and not is_json:
            call.cut = f"HTTP {status}"
            self._link.reason = f"it answered with HTTP {status}"


class Bounded(httpx2.AsyncByteStream):
    """A body that may not be larger than a message."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._inner:
            size += len(chunk)
            if size > MAX_MESSAGE_BYTES:
                raise httpx2.StreamError(f"the answer is larger than {MAX_MESSAGE_BYTES} bytes and was dropped")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()
