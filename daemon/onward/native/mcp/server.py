"""One MCP server of one run: a task that owns its connection, and calls that go through it.

The SDK's contexts have to be left by the task that entered them, so each server has a task of its own, `own`, which
connects, waits, and connects anew with a growing delay when the connection ended.
"""

import logging
from contextlib import AbstractAsyncContextManager
from typing import Any

import anyio
import structlog
from mcp_types import (
    CONNECTION_CLOSED,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    Implementation,
    InputRequiredResult,
    PaginatedRequestParams,
)
from pydantic import TypeAdapter, ValidationError

from mcp import Client, MCPError
from onward import __version__
from onward.core.retry import doubled
from onward.core.text import display
from onward.core.vocabulary import Needs
from onward.errors import causes_of
from onward.native.mcp import results, sending
from onward.native.mcp.http import http_transport
from onward.native.mcp.link import Link
from onward.native.mcp.listing import MAX_TOOLS, Listed
from onward.native.mcp.place import Place, Unavailable
from onward.native.mcp.settings import ServerSettings
from onward.native.mcp.stdio import stdio_transport
from onward.ports.tool import ToolResult

BACKOFF_FIRST_S, BACKOFF_LONGEST_S = 0.5, 30.0
PROBE_S = 10.0
MAX_PAGES = 50
MAX_LISTED = 8 * MAX_TOOLS

_ANSWER: TypeAdapter[CallToolResult | InputRequiredResult] = TypeAdapter(CallToolResult | InputRequiredResult)

log = structlog.get_logger()

# What the SDK logs holds what servers say, secrets too, and goes by none of our processors.
for _name in ("mcp", "client"):
    logging.getLogger(_name).setLevel(logging.CRITICAL + 1)


class Server:
    """A server that is kept connected while `own` runs; `call` may be used by many tasks."""

    def __init__(self, settings: ServerSettings, place: Place) -> None:
        self.settings = settings
        self._place = place
        self._client: Client | None = None
        self._link: Link | None = None
        self._listed: list[Listed] | None = None
        self._changed = anyio.Event()
        self._problem: Unavailable | None = None
        self._failures = 0
        self._closing = False
        self._over = False
        self._patience: anyio.CancelScope | None = None
        """What a close cuts short: the wait before a new start, and a start itself."""

    async def own(self) -> None:
        """Keep the connection until `close`, or until it failed too often; the first one has to succeed."""
        try:
            while not self._closing:
                await self._connection()
                if self._closing or self._listed is None or self._failures > self.settings.restarts:
                    return
                delay_s = doubled(BACKOFF_FIRST_S, BACKOFF_LONGEST_S, self._failures)
                log.info("mcp server is started again", server=self.settings.name, delay_s=delay_s)
                with anyio.CancelScope() as self._patience:
                    await self._place.clock.sleep(delay_s)
        finally:
            self._over = True
            self._announce()

    def close(self) -> None:
        """Let `own` come to its end."""
        self._closing = True
        if self._patience is not None:
            self._patience.cancel()
        if self._link is not None:
            self._link.end()

    async def ended(self) -> None:
        """Wait until `own` has come to its end."""
        while not self._over:
            await self._changed.wait()

    async def tools(self) -> list[Listed]:
        """Wait for the tools that it listed first.

        Raises:
            Unavailable: It could not be started.
        """
        while self._listed is None:
            if self._over:
                raise self._problem or self._unavailable("it was closed", Needs.PROVIDER)
            await self._changed.wait()
        return self._listed

    async def call(self, tool: str, arguments: dict[str, Any], deadline_s: float | None) -> ToolResult:
        """Call a tool by the server's own name. Never raises for what the server does."""
        timeout_s = min(self.settings.timeout_s, deadline_s or self.settings.timeout_s)
        mine = sending.Sending()
        token = sending.current.set(mine)
        link: Link | None = None
        try:
            with anyio.fail_after(timeout_s):
                client, link = await self._connected()
                answer = await self._ask(client, tool, arguments)
        except TimeoutError:
            return self._no_answer(mine, link, timeout_s)
        except Unavailable as error:
            return results.refused(f"nothing was done: {error}")
        except MCPError as error:
            return self._failed(mine, link, error)
        except (ValidationError, ValueError, RuntimeError) as error:
            return self._not_understood(mine, error)
        finally:
            sending.current.reset(token)
        self._failures = 0
        return answer

    # A call

    async def _connected(self) -> tuple[Client, Link]:
        while self._client is None or self._link is None or self._link.over or self._link.doubted:
            if self._over:
                raise self._problem or self._unavailable("it was closed", Needs.PROVIDER)
            await self._changed.wait()
        return self._client, self._link

    async def _ask(self, client: Client, tool: str, arguments: dict[str, Any]) -> ToolResult:
        # Not `client.call_tool`: that may send a call twice, and raises for a result that does not fit its schema.
        request = CallToolRequest(params=CallToolRequestParams(name=tool, arguments=arguments))
        answer = await client.session.send_request(request, _ANSWER)
        if isinstance(answer, InputRequiredResult):
            return results.refused("the tool asks for input from a person, which it cannot get here")
        return results.result_of(answer, self._place.secrets.mask_text)

    def _no_answer(self, mine: sending.Sending, link: Link | None, timeout_s: float) -> ToolResult:
        if not mine.begun or link is None:
            return results.nothing_done(self.settings.name, f"it was not there within {timeout_s:g} s")
        link.doubt()
        return results.timed_out(self.settings.name, timeout_s)

    def _failed(self, mine: sending.Sending, link: Link | None, error: MCPError) -> ToolResult:
        name, mask = self.settings.name, self._place.secrets.mask_text
        if mine.refused is not None:
            return results.nothing_done(name, mask(mine.refused))
        if not mine.begun:
            return results.nothing_done(name, "it ended before the call was sent")
        if mine.cut is not None or error.code == CONNECTION_CLOSED:
            why = mine.cut or (link.reason if link is not None else None) or "the connection ended"
            return results.interrupted(name, mask(why))
        self._failures = 0
        return results.refused(mask(error.message))

    def _not_understood(self, mine: sending.Sending, error: Exception) -> ToolResult:
        if not mine.begun:
            return results.nothing_done(self.settings.name, f"it could not be sent ({type(error).__name__})")
        # Not its text, which repeats what the server sent.
        return results.unreadable(self.settings.name, type(error).__name__)

    # The connection

    async def _connection(self) -> None:
        """Connect, list the tools, and stay until the connection ends."""
        settings = self.settings
        self._link = link = Link(needs=Needs.PROVIDER if settings.argv else Needs.NETWORK)
        problem: Unavailable | None = None
        scope = self._patience = anyio.CancelScope(deadline=anyio.current_time() + settings.start_timeout_s)
        try:
            with scope:
                async with Client(self._transport(link), cache=None, client_info=_OURSELVES) as client:
                    listed = await _list(client)
                    scope.deadline, self._patience = float("inf"), None
                    self._listed = self._listed or listed
                    self._client = client
                    self._announce()
                    await self._stay(client, link)
        except Unavailable as error:
            problem = error
        except Exception as error:  # noqa: BLE001  # the border of a foreign server: its failures are its own
            problem = self._described(error, link)
        finally:
            self._client = None
            link.end()
        if scope.cancelled_caught:
            problem = self._unavailable(f"it did not list its tools within {settings.start_timeout_s:g} s", link.needs)
        self._failures += 1
        self._problem = problem or self._unavailable(link.reason or "the connection ended", link.needs, link)
        self._announce()
        if not self._closing:
            log.warning("mcp server gone", server=settings.name, reason=str(self._problem), failures=self._failures)

    def _transport(self, link: Link) -> AbstractAsyncContextManager[Any]:
        make = stdio_transport if self.settings.argv else http_transport
        return make(self.settings, self._place, link)

    async def _stay(self, client: Client, link: Link) -> None:
        while not link.over and not self._closing:
            await link.changes()
            if link.doubted and not link.over and not await _answers(client):
                link.end("it does not answer any more")
            link.doubted = False
            self._announce()

    def _announce(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    def _described(self, error: Exception, link: Link) -> Unavailable:
        causes = causes_of(error)
        if (told := next((cause for cause in causes if isinstance(cause, Unavailable)), None)) is not None:
            return told
        if (missing := next((cause for cause in causes if isinstance(cause, OSError)), None)) is not None:
            what = f"{self.settings.argv[0]!r} cannot be started: {missing.strerror or missing}"
            return self._unavailable(what if self.settings.argv else str(missing), link.needs, link)
        kinds = "; ".join(dict.fromkeys(_kind(cause) for cause in causes))
        return self._unavailable(link.reason or kinds, link.needs, link)

    def _unavailable(self, what: str, needs: Needs, link: Link | None = None) -> Unavailable:
        words = " | ".join(link.last_words) if link is not None else ""
        said = f"; it said: {words}" if words else ""
        text = display(self._place.secrets.mask_text(f"{what}{said}"), 1500)
        return Unavailable(needs, f"the MCP server {self.settings.name!r} cannot be used: {text}")


_OURSELVES = Implementation(name="onward", version=__version__)


async def _list(client: Client) -> list[Listed]:
    listed: list[Listed] = []
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await client.session.list_tools(params=PaginatedRequestParams(cursor=cursor))
        listed += [
            Listed(name=tool.name, description=tool.description or "", schema=tool.input_schema) for tool in page.tools
        ]
        cursor = page.next_cursor
        if cursor is None or len(listed) > MAX_LISTED:
            break
    return listed[:MAX_LISTED]


async def _answers(client: Client) -> bool:
    """Whether anybody is there: a request that every server knows and that changes nothing."""
    try:
        with anyio.fail_after(PROBE_S):
            await client.session.list_tools()
    except (TimeoutError, MCPError, ValidationError) as error:
        return isinstance(error, ValidationError) or (isinstance(error, MCPError) and error.code != CONNECTION_CLOSED)
    return True


def _kind(error: BaseException) -> str:
    if isinstance(error, MCPError):
        return error.message
    # A validation error repeats what the server sent.
    return "what it says is no MCP" if isinstance(error, ValidationError) else f"{type(error).__name__}: {error}"
