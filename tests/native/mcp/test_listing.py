"""What of a server's listing the model is told."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from onward.core.vocabulary import Effect
from onward.native.mcp.listing import MAX_TOOLS, SCHEMA_BYTES, Listed, clean_schema, offer, tool_name
from onward.native.mcp.settings import ServerSettings, servers_of

NOTHING: dict[str, Any] = {"type": "object", "properties": {}}


def settings(**more: Any) -> ServerSettings:
    return ServerSettings(**{"name": "own", "argv": ("x",), "headers_from": {}, "effects": {}, **more})


def listed(*names: str, description: str = "It helps.", schema: dict[str, Any] = NOTHING) -> list[Listed]:
    return [Listed(name=name, description=description, schema=schema) for name in names]


@pytest.mark.parametrize(
    ("tool", "name"),
    [
        ("read_file", "mcp__own__read_file"),
        ("read-file", "mcp__own__read-file"),
        ("x" * 54, "mcp__own__" + "x" * 54),
        ("read file", "mcp__own__read_file_1214148e"),
        ("read.file", "mcp__own__read_file_dd32cdf5"),
    ],
)
def test_a_name_that_providers_take_is_kept_and_another_made_safe(tool: str, name: str) -> None:
    assert tool_name("own", tool) == name


@hypothesis_settings(max_examples=50)
@given(st.text(min_size=1), st.text(min_size=1))
def test_two_tools_never_share_a_name_and_every_name_is_safe(one: str, other: str) -> None:
    names = [tool_name("a-server-with-a-long-nam", tool) for tool in (one, other)]

    assert (names[0] == names[1]) == (one == other)
    assert all(
        name.isascii() and len(name) <= 64 and name.replace("_", "").replace("-", "").isalnum() for name in names
    )


def test_only_what_the_definition_allows_is_offered_with_the_effect_that_it_says() -> None:
    own = settings(tools=("get_*", "put"), effects={"get_secret": "unknown", "get_*": "read", "p?t": "write"})

    offered = offer(own, listed("get_a", "get_secret", "put", "delete_all", "GET_A"))

    effects = {name: spec.effect for name, spec in offered.specs.items()}
    assert effects == {"get_a": Effect.READ, "get_secret": Effect.UNKNOWN, "put": Effect.WRITE}
    assert offer(settings(), listed("get_a")).specs["get_a"].effect is Effect.UNKNOWN


def test_a_name_that_is_listed_twice_or_is_empty_is_offered_once_or_not() -> None:
    offered = offer(settings(), listed("a", "a", "", " "))

    assert list(offered.specs) == ["a"]
    assert offered.left_out == {"a": "it is listed twice", "": "it has no name", " ": "it has no name"}


def test_a_server_with_very_many_tools_is_bounded() -> None:
    offered = offer(settings(), listed(*map(str, range(MAX_TOOLS + 5))))

    assert len(offered.specs) == MAX_TOOLS
    assert set(offered.left_out) == {str(MAX_TOOLS + n) for n in range(5)}


def test_one_tool_that_providers_would_refuse_does_not_cost_the_run_its_requests() -> None:
    bad = {"type": "object", "properties": {"a b": {"type": "string"}}}

    offered = offer(settings(), listed("bad", schema=bad) + listed("good"))

    assert list(offered.specs) == ["good"]
    assert list(offered.left_out) == ["bad"]


def test_a_description_is_shown_escaped_and_bounded() -> None:
    hidden = "\x1b[2Kdelete\u202e it\u200b\U000e0041 " + "x" * 9000

    described = offer(settings(), listed("a", description=hidden)).specs["a"].description

    assert described.startswith(r"\u{1b}[2Kdelete\u{202e} it\u{200b}\u{e0041} xxx")
    assert len(described) < 4100
    assert offer(settings(), listed("a", description="  ")).specs["a"].description == "a of own"


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"x": schema}}
    return schema


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, NOTHING),
        ({"type": "string", "properties": 3}, NOTHING),
        ({"$schema": "http://x", "anyOf": [{}], "required": ["a"]}, {**NOTHING, "required": ["a"]}),
        ({"properties": {"a": {"anyOf": [{}]}}}, {"type": "object", "properties": {"a": {"anyOf": [{}]}}}),
        (
            {"properties": {"description": {"description": "\u202ex", "enum": ["\u202e"]}}},
            {"type": "object", "properties": {"description": {"description": "\\u{202e}x", "enum": ["\u202e"]}}},
        ),
        ({"properties": {"a": {"enum": ["x" * SCHEMA_BYTES]}}}, NOTHING),
        (deep(60), NOTHING),
        ({"properties": {"a": {"default": float("nan"), "maximum": 1 << 80}}},
         {"type": "object", "properties": {"a": {"default": None, "maximum": str(1 << 80)}}}),
    ],
)  # fmt: skip
def test_a_schema_is_one_that_every_provider_takes(given: dict[str, Any], told: dict[str, Any]) -> None:
    assert clean_schema(given) == told
    assert orjson.loads(orjson.dumps(clean_schema(given))) == told


def test_servers_are_read_from_a_pinned_definition_in_the_order_of_their_names() -> None:
    pinned = {"mcp": {"b": {"url": "http://x"}, "a": {"command": ["x", "y"], "args": ["z"], "timeout_s": 3.0}}}

    a, b = servers_of(pinned)

    assert (a.name, a.argv, a.url, a.timeout_s) == ("a", ("x", "y", "z"), None, 3.0)
    assert (b.name, b.argv, b.url, b.tools) == ("b", (), "http://x", ("*",))
    assert servers_of({}) == []
