"""A model: asked with the whole conversation, answers with one turn or fails."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from onward.core.conversation import Block, ProviderMessage
from onward.errors import OnwardError
from onward.ports.tool import ToolSpec


class FailureClass(StrEnum):
    """Why a model request brought no turn."""

    RATE_LIMITED = "rate_limited"
    OVERLOADED = "overloaded"
    NETWORK = "network"
    CONTEXT_OVERFLOW = "context_overflow"


class ModelFailure(OnwardError):
    """A model request brought no turn. `retry_after_s`: what the provider asked for, if it did."""

    code = "model-failure"
    http_status = 502

    def __init__(self, failure: FailureClass, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.failure = failure
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One request. `turns` are the answers the journal holds, `failures` the failed requests since the newest."""

    system_prompt: str
    messages: Sequence[ProviderMessage]
    tools: Sequence[ToolSpec]
    turns: int
    failures: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTurn:
    """One answer. `stop_reason`: end_turn, tool_use, length or refusal. `usage` holds input_tokens, output_tokens."""

    content: list[Block]
    stop_reason: str
    usage: dict[str, Any] = field(default_factory=dict)
    cost_usd: float = 0.0


class Model(Protocol):
    """One model of one provider."""

    @property
    def provider(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def window_tokens(self) -> int | None:
        """The context window, or None when it is unknown."""
        ...

    async def infer(self, request: ModelRequest) -> ModelTurn:
        """Ask once. Cancelling drops the answer; nothing of half an answer is kept.

        Raises:
            ModelFailure: No turn came; it says why.
        """
        ...
