"""The checker of requests names the rule that is broken, and accepts what providers accept."""

from typing import Any

import pytest

from onward.testing.strict import check_request
from tests.core.journals import text, use

Message = dict[str, Any]


def user(*blocks: Message) -> Message:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: Message) -> Message:
    return {"role": "assistant", "content": list(blocks)}


def result(tool_use_id: str, content: Any = "fine") -> Message:
    return {"type": "tool_result", "tool_use_id": tool_use_id, "content": content}


HELLO = user(text("hello"))
DEEP: Any = {}
for _ in range(5000):
    DEEP = {"a": DEEP}


def test_a_request_that_providers_take_is_accepted() -> None:
    """Signed thinking, two calls answered together, and a message behind their results break no rule."""
    messages = [
        HELLO,
        assistant({"type": "thinking", "thinking": "hm", "signature": "sig"}, text("I look"), use("a"), use("b")),
        user(result("b"), result("a", [text("fine")]), text("and now?")),
        assistant({"type": "redacted_thinking", "data": "x"}, text("done")),
        user(text("thanks")),
    ]

    assert check_request(messages) == []


@pytest.mark.parametrize(
    ("rule", "messages"),
    [
        ("P1", [HELLO, assistant(use("a")), user(text("go on"))]),
        ("P1", [HELLO, assistant(use("a"), use("b")), user(result("a"))]),
        ("P1", [HELLO, assistant(use("a")), user(text("x")), assistant(text("y")), user(result("a"))]),
        ("P1", [HELLO, assistant(use("a"))]),
        ("P2", [HELLO, assistant(use("a")), user(result("a"), result("a"))]),
        ("P2", [HELLO, assistant(text("x")), user(result("a"))]),
        ("P2", [user(result("a"))]),
        ("P3", [HELLO, assistant(use("")), user(result(""))]),
        ("P3", [HELLO, assistant(use("a/../b")), user(result("a/../b"))]),
        ("P3", [HELLO, assistant(use("a"), use("a")), user(result("a"))]),
        ("P3", [HELLO, assistant(use("a")), user(result("a")), assistant(use("a")), user(result("a"))]),
        ("P4", [user(text(""))]),
        ("P4", [user(text(" \n\t"))]),
        ("P4", [user()]),
        ("P4", [HELLO, assistant(use("a")), user(result("a", "\n"))]),
        ("P4", [HELLO, assistant(use("a")), user(result("a", []))]),
        ("P4", [HELLO, assistant(use("a", name="")), user(result("a"))]),
        ("P5", [HELLO, assistant({"type": "thinking", "thinking": "hm"}, text("x")), HELLO]),
        ("P5", [HELLO, assistant({"type": "thinking", "thinking": "hm", "signature": ""}, text("x")), HELLO]),
        ("P5", [HELLO, assistant({"type": "redacted_thinking"}, text("x")), HELLO]),
        ("P7", [user(text("\ud83c"))]),
        ("P7", [HELLO, assistant(use("a", x=float("inf"))), user(result("a"))]),
        ("P7", [HELLO, assistant(use("a", x=DEEP)), user(result("a"))]),
        ("P8", [HELLO, assistant(use("a") | {"input": '{"cmd": "ls'}), user(result("a"))]),
        ("P8", [HELLO, assistant(use("a") | {"input": []}), user(result("a"))]),
        ("P8", [HELLO, assistant(use("a")), user(text("x"), result("a"))]),
        ("roles", [HELLO, HELLO]),
        ("roles", [HELLO, assistant(text("x")), assistant(text("y")), HELLO]),
        ("first", [assistant(text("x")), HELLO]),
        ("first", []),
        ("last", [HELLO, assistant(text("x"))]),
        ("shape", [user(use("a"))]),
        ("shape", [HELLO, assistant(result("a")), HELLO]),
        ("shape", [{"role": "system", "content": [text("x")]}]),
        ("shape", [{"role": "user", "content": "x"}]),
        ("shape", [user({"type": "image"})]),
    ],
)
def test_each_broken_rule_is_named(rule: str, messages: list[Message]) -> None:
    """A request that a strict provider refuses is reported under the rule that it breaks."""
    assert rule in {problem.partition(":")[0] for problem in check_request(messages)}
