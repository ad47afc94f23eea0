"""A model: asked with the whole conversation, answers with one turn or fails."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from onward.core.conversation import Block, ProviderMessage
from onward.errors import OnwardError
from onward.ports.tool import ToolSpec


class FailureClass(StrEnum):
    """Why a model request brought no turn. What follows from each is one row of `core.retry`."""

    RATE_LIMITED = "rate_limited"
    OVERLOADED = "overloaded"
    NETWORK = "network"
    """No connection, a broken stream, or silence for longer than the inactivity timeout."""
    SERVER_ERROR = "server_error"
    AUTH = "auth"
    """No key, a wrong key, or no permission."""
    QUOTA = "quota"
    """The account has no money or quota left."""
    MODEL_MISSING = "model_missing"
    CONTEXT_OVERFLOW = "context_overflow"
    INVALID_REQUEST = "invalid_request"
    """The provider refuses the request itself: a bug in Onward, or a server that is not what it says."""


class ModelFailure(OnwardError):
    """A model request brought no turn.

    `retry_after_s`: what the provider asked for, if it did (may be days). `charged`: the provider may have worked on
    it, so it is charged the request's estimate; a refusal, or a request that was never sent, costs nothing.
    """

    code = "model-failure"
    http_status = 502

    def __init__(
        self, failure: FailureClass, message: str, retry_after_s: float | None = None, *, charged: bool = False
    ) -> None:
        super().__init__(message)
        self.failure = failure
        self.retry_after_s = retry_after_s
        self.charged = charged


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
    """One answer, whole: nothing of half a stream is ever returned.

    `content`: blocks in the shape of Anthropic's Messages API, exactly as the provider gave them where it is Anthropic
    (thinking with signatures byte for byte). A tool_use whose arguments were no JSON object has their text as `input`.
    `stop_reason`: end_turn, tool_use, length or refusal. `usage` holds input_tokens and output_tokens, and where the
    provider tells them cache_read_tokens and cache_write_tokens (parts of input_tokens).
    """

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

    def estimate(self, request: ModelRequest) -> dict[str, float]:
        """Return a cautious estimate of what the request will use: `tokens`, `cost_usd`. Charged if no end is known.

        Where the price is not known `cost_usd` is absent; where nothing is used at all the estimate is empty.
        """
        ...

    async def infer(self, request: ModelRequest, on_delta: Callable[[str], None] | None = None) -> ModelTurn:
        """Ask once. Cancelling drops the answer. `on_delta` is given pieces of text as they come, for those who watch.

        Raises:
            ModelFailure: No turn came; it says why.
        """
        ...
