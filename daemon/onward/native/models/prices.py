"""What a model's answer costs, and what a request may use. Pure; the prices themselves come from configuration."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from onward.ports.model import ModelRequest

TOKENS_PER_BYTE = 0.3
"""Cautious over languages and code: most text has fewer tokens."""
ESTIMATED_OUTPUT = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """US dollars for a million tokens. `cache_read` and `cache_write` None: the price of input.

    A prompt of more than `long_from` tokens costs `long_input` times as much for all its input, and `long_output` times
    for its output.
    """

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None
    long_from: int | None = None
    long_input: float = 1.0
    long_output: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """What is known of a model. None: unknown, and then it costs nothing and its window is not watched."""

    price: Price | None = None
    window_tokens: int | None = None
    max_output_tokens: int | None = None


def cost_usd(usage: Mapping[str, Any], price: Price | None) -> float:
    """Return what an answer cost. Tokens read from and written to the cache are parts of `input_tokens`."""
    if price is None:
        return 0.0
    total: float = usage.get("input_tokens", 0)
    read, written = (float(usage.get(name, 0)) for name in ("cache_read_tokens", "cache_write_tokens"))
    is_long = price.long_from is not None and total > price.long_from
    fresh = max(total - read - written, 0) * price.input
    cached = read * _else(price.cache_read, price.input) + written * _else(price.cache_write, price.input)
    output = float(usage.get("output_tokens", 0)) * price.output
    factors = (price.long_input, price.long_output) if is_long else (1.0, 1.0)
    return round(((fresh + cached) * factors[0] + output * factors[1]) / 1e6, 8)


def tokens_of(value: Any) -> int:
    """Return a cautious estimate of the tokens in a JSON value."""
    return int(len(orjson.dumps(value)) * TOKENS_PER_BYTE) + 1


def prompt_tokens(request: ModelRequest) -> int:
    """Return a cautious estimate of the tokens of a request's prompt."""
    tools = [[tool.name, tool.description, tool.parameters] for tool in request.tools]
    return tokens_of([request.system_prompt, list(request.messages), tools])


def estimate(request: ModelRequest, price: Price | None) -> dict[str, float]:
    """Return what a request will use, cautiously: its prompt, read without cache, and a long answer.

    Without a price there is no `cost_usd`.
    """
    usage = {"input_tokens": prompt_tokens(request), "output_tokens": ESTIMATED_OUTPUT}
    tokens: dict[str, float] = {"tokens": sum(usage.values())}
    return tokens if price is None else {**tokens, "cost_usd": cost_usd(usage, price)}


def _else(value: float | None, other: float) -> float:
    return other if value is None else value
