"""From what came back of a call, or did not, to what the model sees. Pure."""

from collections.abc import Callable

import orjson
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)

from onward.core.text import EXCERPT_BYTES, clean, clean_json, display, excerpt
from onward.core.vocabulary import Outcome
from onward.ports.tool import ToolResult

SHOWN_CHARACTERS = 500

VERIFY = (
    "Whether it took effect is unknown. It has NOT been retried. Verify the state of what it was changing before "
    "assuming either way."
)

Mask = Callable[[str], str]


def result_of(answer: CallToolResult, mask: Mask) -> ToolResult:
    """Return an answer as text: what is no text is described. Masked before it is cut, so that no half secret stays."""
    text = "\n".join(_described(block) for block in answer.content)
    if not answer.content and answer.structured_content is not None:
        text = orjson.dumps(clean_json(answer.structured_content), option=orjson.OPT_INDENT_2).decode()
    text = mask(clean(text))
    if answer.is_error:
        text = f"[error] {text or 'the tool says that it failed'}"
    return ToolResult(
        text=excerpt(text),
        outcome=Outcome.ERROR if answer.is_error else Outcome.OK,
        full=text.encode() if len(text.encode()) > EXCERPT_BYTES else None,
    )


def _described(block: ContentBlock) -> str:
    match block:
        case TextContent(text=text):
            return text
        case ImageContent(data=data, mime_type=kind):
            return f"[image {display(kind, 100)}, {_bytes_in(data)} bytes: not shown]"
        case AudioContent(data=data, mime_type=kind):
            return f"[audio {display(kind, 100)}, {_bytes_in(data)} bytes: not shown]"
        case ResourceLink(name=name, uri=uri):
            return f"[resource {display(name, 200)}: {display(str(uri), SHOWN_CHARACTERS)}]"
        case EmbeddedResource(resource=BlobResourceContents(blob=data, uri=uri, mime_type=kind)):
            what = f"{display(str(uri), SHOWN_CHARACTERS)}, {display(kind or 'of unknown kind', 100)}"
            return f"[resource {what}, {_bytes_in(data)} bytes: not shown]"
        case EmbeddedResource(resource=resource):
            return f"[resource {display(str(resource.uri), SHOWN_CHARACTERS)}]\n{getattr(resource, 'text', '')}"
    return "[content of an unknown kind: not shown]"


def _bytes_in(base64: str) -> int:
    return len(base64) * 3 // 4 - base64[-2:].count("=")


def nothing_done(server: str, why: str) -> ToolResult:
    """Return the result of a call that never reached its server, or that this refused."""
    text = f"[error] the MCP server {server!r} did not carry the call out, so nothing was done: {why}"
    return ToolResult(text=excerpt(clean(text)), outcome=Outcome.ERROR)


def interrupted(server: str, why: str) -> ToolResult:
    """Return the result of a call whose answer will not come."""
    text = f"[error] interrupted: the MCP server {server!r} went away while this call was in flight ({why}). {VERIFY}"
    return ToolResult(text=excerpt(clean(text)), outcome=Outcome.INTERRUPTED, reason="the MCP server went away")


def timed_out(server: str, timeout_s: float) -> ToolResult:
    """Return the result of a call that had no answer in time."""
    text = f"[error] timeout: the MCP server {server!r} did not answer within {timeout_s:g} s. {VERIFY}"
    return ToolResult(text=text, outcome=Outcome.TIMEOUT, reason=f"no answer within {timeout_s:g} s")


def refused(message: str) -> ToolResult:
    """Return the result of a call that the server answered with an error of the protocol."""
    return ToolResult(text=excerpt(f"[error] {clean(message)}"), outcome=Outcome.ERROR)


def unreadable(server: str, why: str) -> ToolResult:
    """Return the result of a call that was answered with what is no result."""
    text = f"[error] the MCP server {server!r} answered with something that is no result ({clean(why)}). {VERIFY}"
    return ToolResult(text=excerpt(text), outcome=Outcome.ERROR)
