"""The scripted model: answers from a file, for the demo, tests, benchmarks and rehearsals without cost.

The turn at position n answers when the journal holds n turns, so asking again after a crash gives the same turn again.
"""

import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from onward.core.conversation import Block, ProviderMessage
from onward.errors import BadRequest
from onward.ports.clock import Clock
from onward.ports.model import FailureClass, ModelFailure, ModelRequest, ModelTurn

END_OF_SCRIPT = "(end of script)"

Count = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class ScriptedCall(BaseModel):
    """One tool call. Text as `arguments` stands for malformed ones; `id` is the provider's, made up if absent."""

    model_config = ConfigDict(extra="forbid")

    name: str
    arguments: dict[str, Any] | str = Field(default_factory=dict)
    id: str | None = None


class ScriptedTurn(BaseModel):
    """One answer, or one of several alternatives for its position."""

    model_config = ConfigDict(extra="forbid")

    text: str = ""
    calls: list[ScriptedCall] = Field(default_factory=list)
    when: str | None = None
    """Chosen if this text occurs in the newest results or messages."""
    delay_s: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    repeat: int = Field(default=1, ge=1)
    """The position stands for so many turns; `{i}` in strings is the count, from 1."""
    fail: FailureClass | None = None
    fail_times: int = Field(default=1, ge=1)
    usage: dict[str, Count] = Field(default_factory=dict)
    stop_reason: str | None = None


class Script(BaseModel):
    """A whole file."""

    model_config = ConfigDict(extra="forbid")

    turns: list[ScriptedTurn | Annotated[list[ScriptedTurn], Field(min_length=1)]]
    window_tokens: int | None = None


def read_script(path: Path) -> Script:
    """Return the script in a TOML or JSON file.

    Raises:
        BadRequest: It cannot be read, or is no script.
    """
    try:
        data = path.read_bytes()
        content = tomllib.loads(data.decode()) if path.suffix == ".toml" else orjson.loads(data)
        return Script.model_validate(content)
    except OSError as error:
        raise BadRequest(f"the script {str(path)!r} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BadRequest(f"the script {str(path)!r} is wrong at {where}: {first['msg']}") from error
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the script {str(path)!r} is neither JSON nor TOML: {error}") from error


class ScriptedModel:
    """Implements `onward.ports.model.Model`."""

    provider = "scripted"

    def __init__(self, path: Path, clock: Clock) -> None:
        """Read the script once; a run goes on with what it said then."""
        self.name = str(path)
        self._clock = clock
        script = read_script(path)
        self.window_tokens = script.window_tokens
        self._positions = [turn if isinstance(turn, list) else [turn] for turn in script.turns]
        self._ends = _ends(self._positions)

    def estimate(self, request: ModelRequest) -> dict[str, float]:
        return {}

    async def infer(self, request: ModelRequest, on_delta: Callable[[str], None] | None = None) -> ModelTurn:
        choices, count = self._at(request.turns)
        if not choices:
            return ModelTurn(content=[_text(END_OF_SCRIPT)], stop_reason="end_turn")
        turn = _choose(choices, request.messages)
        if turn.fail is not None and request.failures < turn.fail_times:
            raise ModelFailure(turn.fail, f"the script says so ({turn.fail})")
        if turn.delay_s:
            await self._clock.sleep(turn.delay_s)
        if on_delta is not None and turn.text:
            on_delta(turn.text)
        return _answer(turn, count, request.turns + 1)

    def _at(self, turns: int) -> tuple[list[ScriptedTurn], int]:
        """Return the alternatives after so many turns, and the count within a repeated position."""
        low, high = 0, len(self._ends)
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if turns < self._ends[middle] else (middle + 1, high)
        if low == len(self._ends):
            return [], 0
        return self._positions[low], turns - (self._ends[low - 1] if low else 0) + 1


def _ends(positions: list[list[ScriptedTurn]]) -> list[int]:
    ends, total = [], 0
    for choices in positions:
        total += max((turn.repeat for turn in choices), default=1)
        ends.append(total)
    return ends


def _choose(choices: list[ScriptedTurn], messages: Sequence[ProviderMessage]) -> ScriptedTurn:
    newest = [str(block.get("content", block.get("text", ""))) for block in messages[-1]["content"]] if messages else []
    for turn in choices:
        if turn.when is not None and any(turn.when in text for text in newest):
            return turn
    return next((turn for turn in choices if turn.when is None), choices[0])


def _answer(turn: ScriptedTurn, count: int, number: int) -> ModelTurn:
    number_of_repeat = str(count) if turn.repeat > 1 else None
    content: list[Block] = [_text(_filled(turn.text, number_of_repeat))] if turn.text else []
    for position, call in enumerate(turn.calls, 1):
        view_id = f"call_{number}_{position}" if call.id is None else call.id
        content.append(
            {"type": "tool_use", "id": view_id, "name": call.name, "input": _filled(call.arguments, number_of_repeat)}
        )
    usage = {name: int(turn.usage.get(name, 0)) for name in ("input_tokens", "output_tokens")}
    return ModelTurn(
        content=content,
        stop_reason=turn.stop_reason or ("tool_use" if turn.calls else "end_turn"),
        usage=usage,
        cost_usd=float(turn.usage.get("cost_usd", 0.0)),
    )


def _filled(value: Any, count: str | None) -> Any:
    if count is None:
        return value
    if isinstance(value, str):
        return value.replace("{i}", count)
    if isinstance(value, dict):
        return {key: _filled(item, count) for key, item in value.items()}
    return [_filled(item, count) for item in value] if isinstance(value, list) else value


def _text(text: str) -> Block:
    return {"type": "text", "text": text}
