"""A run of 3,000 turns: what a turn costs us at its end and at its beginning; and apart from that, what an SDK takes to
build a request, which grows with what was said.
"""

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import anthropic
import httpx2
import openai

from bench.common import RESULT_TEXTS, TURN_TEXTS, Json, by_turns, median, row, show
from onward.core.conversation import CallState, Conversation, ProviderMessage, Turn
from onward.native.models import anthropic_api, openai_api
from onward.native.tools.registry import builtin_tools
from onward.ports.model import ModelRequest

TURNS = 3000
LENGTHS = (100, 1000, TURNS)
ROUNDS = 5


def conversation(turns: int) -> Conversation:
    """Return a conversation of so many turns, each with a call."""
    talk = Conversation()
    talk.add_message(1, "x" * 800)
    for number in range(1, turns + 1):
        call = CallState(
            call_id=f"t{number}c1",
            provider_id=f"call_{number}",
            name="shell",
            arguments={"command": "true"},
            effect="unknown",
            outcome="ok",
            result=RESULT_TEXTS[number % 8],
        )
        asked = {"type": "tool_use", "id": call.provider_id, "name": call.name, "input": call.arguments}
        content: list[Json] = [{"type": "text", "text": TURN_TEXTS[number % 8]}, asked]
        turn = Turn(turn=number, seen=number, content=content, stop_reason="tool_use", calls=[call], batch=True)
        talk.add_turn(turn)
    return talk


def request(messages: Sequence[ProviderMessage]) -> ModelRequest:
    tools = [tool.spec for tool in builtin_tools().values()]
    return ModelRequest(system_prompt="x" * 800, messages=messages, tools=tools, turns=0, failures=0)


class Reached(Exception):  # no error: the request is built, that is all
    """The SDK handed the request to the network."""


def no_network(_request: httpx2.Request) -> httpx2.Response:
    raise Reached


def milliseconds(act: Callable[[], object]) -> float:
    """Return the best of some rounds: what it takes when nothing else disturbs."""
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.perf_counter()
        with suppress(Reached, anthropic.APIConnectionError, openai.APIConnectionError):
            act()
        best = min(best, time.perf_counter() - began)
    return round(best * 1e3, 3)


def building(turns: int) -> Json:
    """Return the milliseconds from a conversation to a request, part by part."""
    talk = conversation(turns)
    view = milliseconds(talk.request)
    asked = request(talk.request())
    client = httpx2.Client(transport=httpx2.MockTransport(no_network))
    first = anthropic.Anthropic(api_key="none", http_client=client, max_retries=0)
    second = openai.OpenAI(api_key="none", http_client=client, max_retries=0)
    bodies = (
        anthropic_api.body_of(asked, "m", 1024),
        openai_api.body_of(asked, "m", 1024, is_own_server=True),
    )
    return {
        "turns": turns,
        "view_ms": view,
        "anthropic_body_ms": milliseconds(lambda: anthropic_api.body_of(asked, "m", 1024)),
        "anthropic_sdk_ms": milliseconds(lambda: first.post("/v1/messages", cast_to=object, body=bodies[0])),
        "openai_body_ms": milliseconds(lambda: openai_api.body_of(asked, "m", 1024, is_own_server=True)),
        "openai_sdk_ms": milliseconds(lambda: second.post("/chat/completions", cast_to=object, body=bodies[1])),
    }


def main(rounds: int = 1) -> None:
    found = by_turns(rounds, onward=("w1", "run", 1, TURNS))["onward"]
    show(long=f"{TURNS:,} turns", **{member: median(found, member) for member in found[0]})
    row(f"ms/turn, last 50 of {TURNS:,}, x the first 50", median(found, "growth"), at_most=1.1)
    row("the same, processor time of the loop", median(found, "cpu_growth"))
    for turns in LENGTHS:
        built = building(turns)
        show(long="building a request", **built)
        row(f"view of {turns:,} turns: ms", built["view_ms"])
        row(f"request of {turns:,} turns, Anthropic's SDK: ms", built["anthropic_sdk_ms"])
        row(f"request of {turns:,} turns, OpenAI's SDK: ms", built["openai_sdk_ms"])


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
