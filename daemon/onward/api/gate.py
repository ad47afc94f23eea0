"""What every request passes first: who may ask from where, and how much.

A web page that is open on the same machine can reach the daemon too (through `ssh -L`, or TCP), with the browser as
its deputy. So the Host is one of a fixed list (name re-binding chooses the Host, and an Origin that only equals it
proves nothing), an Origin must be that very host, and a change needs a media type and a header that no form can send
and no foreign page may send without being asked first, which is refused.

A command of a run that asks for a change, to answer its run's own question, say, is refused where it is recognised by
its cgroup: a tripwire, not a wall, since what runs as our user can leave that group.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress

from anyio import to_thread
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from onward.api.problems import TooLarge, problem
from onward.errors import BadRequest, OnwardError, Refused

LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]"})
BODY_LIMIT_BYTES = 4 << 20
JSON_DEPTH = 64
REQUEST_HEADER = "onward-request"

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_SMALL_BYTES = 64 << 10
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_NO_BRACKET = bytes(set(range(256)) - set(b"[]{}"))
_SQUARE = bytes.maketrans(b"{}", b"[]")


class Gate:
    """ASGI middleware that lets a request through or answers it with a problem; the body passes whole."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        allowed_hosts: frozenset[str] = LOCAL_HOSTS,
        is_in_a_call: Callable[[int], bool] = lambda _pid: False,
    ) -> None:
        self.app = app
        self.is_in_a_call = is_in_a_call
        self.allowed_hosts = allowed_hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        try:
            headers = Headers(scope=scope)
            check_browser(headers, self.allowed_hosts)
            if scope["method"] in _SAFE_METHODS:
                return await self.app(scope, receive, send)
            check_change(headers)
            await self._check_peer(scope)
            body = await _read_body(headers, receive)
        except OnwardError as error:
            return await problem(error)(scope, receive, send)
        return await self.app(scope, _replay(body, receive), send)

    async def _check_peer(self, scope: Scope) -> None:
        pid = scope.get("state", {}).get("peer_pid", 0)
        if pid and await to_thread.run_sync(self.is_in_a_call, pid):
            raise Refused(f"process {pid} belongs to a tool call: a command of a run may look, but change nothing here")


def check_browser(headers: Headers, allowed_hosts: frozenset[str]) -> None:
    """Refuse a Host that is not on the list and an Origin that is not exactly that host.

    Raises:
        Refused: It is.
    """
    host = headers.get("host", "")
    if _without_port(host) not in allowed_hosts:
        raise Refused(f"the host {host[:80]!r} is not served here")
    origins = headers.getlist("origin")
    if any(origin not in (f"http://{host}", f"https://{host}") for origin in origins):
        raise Refused(f"a page of {origins[0][:80]!r} may not talk to this daemon")


def check_change(headers: Headers) -> None:
    """Refuse a change that a form or a foreign page could have sent.

    Raises:
        Refused: It lacks the media type or the header.
    """
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise Refused("a change must be sent as application/json")
    if headers.get(REQUEST_HEADER) != "1":
        raise Refused("a change must carry the header 'Onward-Request: 1'")


def too_deep(body: bytes) -> bool:
    """Say whether JSON nests deeper than `JSON_DEPTH`. What is no JSON gets any answer; a parser will refuse it."""
    brackets = _STRING.sub(b"", body).translate(_SQUARE, _NO_BRACKET)
    for _ in range(JSON_DEPTH):
        # Every round takes the innermost level away; all of it is done in C, also for 4 MiB of brackets.
        brackets = brackets.replace(b"[]", b"")
    return b"[]" in brackets or len(brackets) > JSON_DEPTH


def _without_port(host: str) -> str:
    return re.sub(r":\d{1,5}\Z", "", host).lower()


async def _read_body(headers: Headers, receive: Receive) -> bytes:
    with suppress(ValueError):
        if int(headers.get("content-length", "0")) > BODY_LIMIT_BYTES:
            raise TooLarge(f"the body has more than {BODY_LIMIT_BYTES} bytes")
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise BadRequest("the client went away before the request was whole")
        body += message.get("body", b"")
        if len(body) > BODY_LIMIT_BYTES:
            raise TooLarge(f"the body has more than {BODY_LIMIT_BYTES} bytes")
        if not message.get("more_body", False):
            break
    whole = bytes(body)
    deep = too_deep(whole) if len(whole) <= _SMALL_BYTES else await to_thread.run_sync(too_deep, whole)
    if deep:
        raise BadRequest(f"the body nests deeper than {JSON_DEPTH} levels")
    return whole


def _replay(body: bytes, receive: Receive) -> Receive:
    messages: Iterator[Message] = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def replay() -> Message:
        return next(messages, None) or await receive()

    return replay
