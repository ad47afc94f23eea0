"""Real SDKs against the fake server."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from onward.core.vocabulary import Effect
from onward.native.models.anthropic import AnthropicDialect
from onward.native.models.openai import OpenAIDialect
from onward.native.models.prices import Card
from onward.native.models.remote import Connection, Endpoint, RemoteModel
from onward.ports.model import ModelFailure, ModelRequest
from onward.ports.tool import ToolSpec
from onward.testing.clocks import FakeClock
from tests.fake_server.server import KEY, FakeServer

Json = dict[str, Any]

PROVIDERS = ("anthropic", "openai")
NAMES = {"anthropic": "claude-test", "openai": "gpt-test"}
SHELL = ToolSpec(
    name="shell",
    description="Runs a command.",
    parameters={"type": "object", "properties": {"command": {"type": "string"}}},
    effect=Effect.UNKNOWN,
)
TASK = {"role": "user", "content": [{"type": "text", "text": "Do it."}]}


def request(*messages: Json, tools: Sequence[ToolSpec] = (SHELL,), system: str = "You work.") -> ModelRequest:
    return ModelRequest(system_prompt=system, messages=messages or (TASK,), tools=tools, turns=0, failures=0)


@asynccontextmanager
async def connected(
    kind: str, fake: FakeServer, card: Card | None = None, **members: Any
) -> AsyncIterator[RemoteModel]:
    """A model of a provider whose server is the fake one."""
    base_url = fake.url if kind == "anthropic" else fake.openai_url
    endpoint = Endpoint(name=kind, base_url=base_url, **{"key": KEY, **members})
    dialect = AnthropicDialect() if kind == "anthropic" else OpenAIDialect()
    connection = Connection(endpoint, dialect, FakeClock())
    try:
        yield RemoteModel(connection, NAMES[kind], card or Card())
    finally:
        await connection.aclose()


async def failure_of(model: RemoteModel, asked: ModelRequest | None = None) -> ModelFailure:
    with pytest.raises(ModelFailure) as caught:
        await model.infer(asked or request())
    shown = f"{caught.value} {caught.value!r} {caught.value.__cause__!r}"
    assert KEY not in shown
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return caught.value
