"""Every number that a person can write down has bounds: nothing that is done with it can overflow or hang."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest
from pydantic import BaseModel

from onward.api import requests
from onward.config.agents import AgentDefinition
from onward.config.numbers import LONGEST_S
from onward.config.settings import Settings
from onward.core.bounds import MOST
from onward.core.times import stamp

MODELS: list[type[BaseModel]] = [
    Settings,
    AgentDefinition,
    *(each for each in vars(requests).values() if isinstance(each, type) and each in BaseModel.__subclasses__()),
]


def numbers_in(schema: Any, at: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every number of a JSON schema with its place."""
    if isinstance(schema, list):
        for item in schema:
            yield from numbers_in(item, at)
    if isinstance(schema, dict):
        if schema.get("type") in ("integer", "number"):
            yield at, schema
        for name, inner in schema.items():
            yield from numbers_in(inner, f"{at}.{name}")


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_no_number_is_without_bounds(model: type[BaseModel]) -> None:
    for at, schema in numbers_in(model.model_json_schema()):
        assert {"minimum", "exclusiveMinimum"} & set(schema), at
        assert schema["maximum"] <= MOST, at


def test_there_are_numbers_to_look_at() -> None:
    found = [at for model in MODELS for at, _ in numbers_in(model.model_json_schema())]
    assert len(found) > 30


def test_the_bounds_are_such_that_all_can_be_written_and_waited_for() -> None:
    orjson.dumps([MOST, MOST * 1000])
    moment = datetime(2100, 1, 1, tzinfo=UTC) + timedelta(seconds=LONGEST_S)
    assert stamp(moment).startswith("2131")
