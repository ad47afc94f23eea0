"""The scripted model: answers by the number of turns in the journal, so asking again gives the same answer again."""

from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest
from anyio import to_thread

from onward.errors import BadRequest
from onward.native.models.scripted import END_OF_SCRIPT, ScriptedModel
from onward.ports.model import FailureClass, ModelFailure, ModelRequest, ModelTurn
from onward.testing.clocks import FakeClock
from tests.support import eventually


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


async def model(tmp_path: Path, clock: FakeClock, *turns: Any, **members: Any) -> ScriptedModel:
    file = tmp_path / "script.json"
    file.write_bytes(orjson.dumps({"turns": list(turns), **members}))
    return await to_thread.run_sync(ScriptedModel, file, clock)


def request(turns: int = 0, newest: str = "do it", failures: int = 0, result: bool = False) -> ModelRequest:
    block = {"type": "tool_result", "content": newest} if result else {"type": "text", "text": newest}
    messages: Any = [{"role": "user", "content": [block]}]
    return ModelRequest(system_prompt="", messages=messages, tools=[], turns=turns, failures=failures)


def text_of(turn: ModelTurn) -> str:
    return str(turn.content[0]["text"])


async def texts(model: ScriptedModel, turns: int) -> list[str]:
    return [text_of(await model.infer(request(number))) for number in range(turns)]


async def test_the_answer_is_chosen_by_the_number_of_turns_and_is_the_same_when_asked_again(
    tmp_path: Path, clock: FakeClock
) -> None:
    asked = await model(tmp_path, clock, {"text": "one"}, {"text": "two"})
    assert await texts(asked, 2) == ["one", "two"]
    assert await texts(asked, 2) == ["one", "two"]
    again = await to_thread.run_sync(ScriptedModel, tmp_path / "script.json", clock)
    assert text_of(await again.infer(request(1))) == "two"


async def test_after_the_last_turn_the_script_says_so_and_ends_the_run(tmp_path: Path, clock: FakeClock) -> None:
    asked = await model(tmp_path, clock, {"text": "one"})
    for turns in (1, 2, 50):
        answer = await asked.infer(request(turns))
        assert (text_of(answer), answer.stop_reason) == (END_OF_SCRIPT, "end_turn")


async def test_an_empty_script_is_at_its_end(tmp_path: Path, clock: FakeClock) -> None:
    assert await texts(await model(tmp_path, clock), 1) == [END_OF_SCRIPT]


async def test_alternatives_are_chosen_by_what_the_newest_message_or_result_says(
    tmp_path: Path, clock: FakeClock
) -> None:
    asked = await model(
        tmp_path,
        clock,
        [{"when": "interrupted", "text": "look first"}, {"when": "denied", "text": "ask"}, {"text": "go on"}],
    )
    assert text_of(await asked.infer(request(newest="[error] interrupted: ...", result=True))) == "look first"
    assert text_of(await asked.infer(request(newest="it was denied"))) == "ask"
    assert text_of(await asked.infer(request(newest="fine"))) == "go on"


async def test_without_an_alternative_that_fits_the_first_one_answers(tmp_path: Path, clock: FakeClock) -> None:
    asked = await model(tmp_path, clock, [{"when": "a", "text": "first"}, {"when": "b", "text": "second"}])
    assert text_of(await asked.infer(request(newest="c"))) == "first"


async def test_a_repeated_turn_stands_for_many_and_counts_in_its_words(tmp_path: Path, clock: FakeClock) -> None:
    call = {"name": "shell", "arguments": {"command": "echo {i}", "deep": [{"n": "{i}"}, 5]}}
    asked = await model(tmp_path, clock, {"text": "{i}"}, {"text": "turn {i}", "repeat": 3, "calls": [call]})
    assert await texts(asked, 5) == ["{i}", "turn 1", "turn 2", "turn 3", END_OF_SCRIPT]
    third = (await asked.infer(request(3))).content[1]
    assert third["input"] == {"command": "echo 3", "deep": [{"n": "3"}, 5]}


async def test_calls_get_ids_of_their_own_unless_the_script_names_them(tmp_path: Path, clock: FakeClock) -> None:
    calls = [{"name": "shell", "arguments": {"command": "a"}}, {"name": "read_file", "id": "mine"}, {"name": "x"}]
    answer = await (await model(tmp_path, clock, {"calls": calls})).infer(request())
    assert [(block["name"], block["id"], block["input"]) for block in answer.content] == [
        ("shell", "call_1_1", {"command": "a"}),
        ("read_file", "mine", {}),
        ("x", "call_1_3", {}),
    ]
    assert answer.stop_reason == "tool_use"


async def test_text_as_arguments_stands_for_malformed_ones(tmp_path: Path, clock: FakeClock) -> None:
    asked = await model(tmp_path, clock, {"calls": [{"name": "shell", "arguments": '{"command": "ls'}]})
    assert (await asked.infer(request())).content[0]["input"] == '{"command": "ls'


@pytest.mark.parametrize("kind", list(FailureClass))
async def test_a_turn_fails_as_often_as_it_says_and_then_answers(
    tmp_path: Path, clock: FakeClock, kind: FailureClass
) -> None:
    asked = await model(tmp_path, clock, {"text": "at last", "fail": kind, "fail_times": 2})
    for failures in (0, 1):
        with pytest.raises(ModelFailure) as failed:
            await asked.infer(request(failures=failures))
        assert failed.value.failure is kind
    assert text_of(await asked.infer(request(failures=2))) == "at last"


async def test_an_answer_takes_its_time_on_the_clock(tmp_path: Path, clock: FakeClock) -> None:
    asked = await model(tmp_path, clock, {"text": "slow", "delay_s": 30})
    answers: list[ModelTurn] = []

    async def ask() -> None:
        answers.append(await asked.infer(request()))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await eventually(lambda: clock.sleepers == 1)
        clock.advance(29)
        await anyio.lowlevel.checkpoint()
        assert answers == []
        clock.advance(1)
    assert text_of(answers[0]) == "slow"


async def test_usage_and_stop_reason_are_what_the_script_says(tmp_path: Path, clock: FakeClock) -> None:
    usage = {"input_tokens": 100, "output_tokens": 20, "cost_usd": 0.25}
    asked = await model(tmp_path, clock, {"text": "x", "usage": usage, "stop_reason": "length"}, window_tokens=5000)
    answer = await asked.infer(request())
    assert answer.usage == {"input_tokens": 100, "output_tokens": 20}
    assert (answer.cost_usd, answer.stop_reason) == (0.25, "length")
    assert (asked.provider, asked.name, asked.window_tokens) == ("scripted", str(tmp_path / "script.json"), 5000)


async def test_those_who_watch_are_given_the_text(tmp_path: Path, clock: FakeClock) -> None:
    heard: list[str] = []
    await (await model(tmp_path, clock, {"text": "hello"})).infer(request(), heard.append)
    assert heard == ["hello"]


def test_a_script_may_be_written_in_toml(tmp_path: Path, clock: FakeClock) -> None:
    file = tmp_path / "script.toml"
    file.write_text(
        '[[turns]]\ntext = "one"\n[[turns.calls]]\nname = "shell"\n[turns.calls.arguments]\ncommand = "ls"\n'
    )
    answer = anyio.run(ScriptedModel(file, clock).infer, request())
    assert [block["type"] for block in answer.content] == ["text", "tool_use"]


def test_a_run_goes_on_with_the_script_it_began_with(tmp_path: Path, clock: FakeClock) -> None:
    file = tmp_path / "script.json"
    file.write_text('{"turns": [{"text": "old"}]}')
    asked = ScriptedModel(file, clock)
    file.write_text("{}")
    assert text_of(anyio.run(asked.infer, request())) == "old"


WRONG = {
    "empty.json": (b"", "neither JSON nor TOML"),
    "half.json": (b'{"turns": [', "neither JSON nor TOML"),
    "list.json": (b"[]", "is wrong at"),
    "null.json": (b"null", "is wrong at"),
    "deep.json": (b'{"turns": ' + b"[" * 5000, "neither JSON nor TOML"),
    "deep.toml": (b"turns = " + b"[" * 5000, "neither JSON nor TOML"),
    "bytes.json": (b"\xff\xfe", "neither JSON nor TOML"),
    "bytes.toml": (b"\xff\xfe", "neither JSON nor TOML"),
    "half.toml": (b"turns = [", "neither JSON nor TOML"),
    "other.json": (b'{"turnz": []}', "turnz|turns"),
    "number.json": (b'{"turns": 5}', "is wrong at turns"),
    "unknown.json": (b'{"turns": [{"texd": "x"}]}', "is wrong at turns.0"),
    "none.json": (b'{"turns": [[]]}', "is wrong at turns.0"),
    "delay.json": (b'{"turns": [{"delay_s": -1}]}', "is wrong at turns.0"),
    "repeat.json": (b'{"turns": [{"repeat": 0}]}', "is wrong at turns.0"),
    "fail.json": (b'{"turns": [{"fail": "sometimes"}]}', "is wrong at turns.0"),
    "call.json": (b'{"turns": [{"calls": [{"arguments": {}}]}]}', "is wrong at turns.0"),
    "arguments.json": (b'{"turns": [{"calls": [{"name": "x", "arguments": [1]}]}]}', "is wrong at turns.0"),
    "delay.toml": (b"[[turns]]\ndelay_s = inf\n", "is wrong at turns.0"),
    "usage.toml": (b"[[turns]]\nusage = {input_tokens = inf}\n", "is wrong at turns.0"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_file_that_is_no_script_is_refused_with_its_name_and_the_reason(
    tmp_path: Path, clock: FakeClock, name: str
) -> None:
    content, reason = WRONG[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadRequest, match=reason) as refused:
        ScriptedModel(tmp_path / name, clock)
    assert str(tmp_path / name) in str(refused.value)


def test_a_file_that_cannot_be_read_is_refused_with_its_name(tmp_path: Path, clock: FakeClock) -> None:
    (tmp_path / "directory.json").mkdir()
    for name in ("missing.json", "directory.json"):
        with pytest.raises(BadRequest, match=f"{name}.*cannot be read"):
            ScriptedModel(tmp_path / name, clock)
