"""Servers as processes: what they answer, and what becomes of a call when they die, hang or flood."""

import json
import os
import signal
import sys
from functools import partial
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from onward.core.text import EXCERPT_BYTES
from onward.core.vocabulary import Effect, Needs, Outcome
from onward.native.mcp import server, stdio
from onward.native.mcp.place import Unavailable
from onward.native.mcp.tools import CLOSE_S
from onward.ports.tool import ToolResult
from tests.native.mcp.world import RUN_ID, McpWorld
from tests.support import eventually

MARK = "a-marked-value-0123456789"


@pytest.mark.parametrize("module", ["plain", "served"])
async def test_a_call_is_answered_and_its_tools_are_named_after_their_server(world: McpWorld, module: str) -> None:
    async with world.entered(own=world.command(module, effects={"bump": "write"})):
        result = await world.call("bump", {"name": "one"})
        spec = world.tools["mcp__own__bump"].spec

    assert result == ToolResult(text="bumped one")
    assert world.effects() == ["one"]
    assert (spec.description, spec.effect, spec.stoppable) == ("It does bump.", Effect.WRITE, True)
    assert spec.parameters["properties"]["name"]["description"] == r"whose\u{202e} count"


async def test_a_server_goes_before_the_daemon_when_memory_runs_out(world: McpWorld) -> None:
    def scores() -> list[str]:
        pids = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        return [Path(f"/proc/{pid}/oom_score_adj").read_text().strip() for pid in pids]

    async with world.entered(own=world.command()):
        await world.call("bump")
        assert "500" in await to_thread.run_sync(scores)


async def test_what_is_no_text_is_described_and_an_error_is_one(world: McpWorld) -> None:
    async with world.entered(own=world.command()):
        picture, fails = await world.call("picture"), await world.call("fails")
        nonsense = await world.call("nonsense")

    assert picture.text.splitlines() == [
        "look:",
        "[image image/png, 8 bytes: not shown]",
        "[resource file:///a.bin, x/y, 3 bytes: not shown]",
    ]
    assert (fails.text, fails.outcome) == ("[error] it did not work", Outcome.ERROR)
    assert nonsense.outcome is Outcome.ERROR
    assert "answered with something that is no result" in nonsense.text
    assert "Whether it took effect is unknown" in nonsense.text


async def test_a_huge_answer_is_an_excerpt_with_the_whole_beside_it(world: McpWorld) -> None:
    async with world.entered(own=world.command()):
        result = await world.call("huge")

    assert len(result.text.encode()) <= EXCERPT_BYTES
    assert result.text.startswith("aaa")
    assert result.full == b"a" * 100_000 + "\ufffd".encode() + b"z" * 100_000


async def test_an_answer_beyond_all_bounds_is_dropped_and_the_next_is_intact(world: McpWorld) -> None:
    async with world.entered(own=world.command()):
        result, after = await world.call("too_huge"), await world.call("bump")

    assert result.outcome is Outcome.ERROR
    assert "larger than 16777216 and was dropped" in result.text
    assert (after.text, len(world.pids())) == ("bumped bump", 1)


async def test_a_server_gets_its_markers_and_what_is_named_and_nothing_else(world: McpWorld) -> None:
    world.environment |= {"MARKED": MARK, "OTHER_KEY": "other-value-0123456789", "LANG": "C.UTF-8"}
    async with world.entered(own=world.command(env_from=["MARKED"])):
        result = await world.call("environment")
        session = os.getsid(world.pids()[0])

    given = json.loads(result.text)
    given.pop("LC_CTYPE", None)  # set by Python itself
    assert given == {
        "PATH": world.environment["PATH"],
        "LANG": "C.UTF-8",
        "MARKED": "[secret MARKED]",
        "ONWARD_INSTANCE": "an instance of the tests",
        "ONWARD_RUN_ID": RUN_ID,
        "ONWARD_CALL_ID": "mcp",
    }
    assert session == world.pids()[0]


async def test_its_stderr_is_drained_and_its_last_words_hold_no_secret(world: McpWorld) -> None:
    world.environment["MARKED"] = MARK
    async with world.entered(own=world.command(env_from=["MARKED"])):
        assert (await world.call("noise")).text == "made noise"

    (world.top / "broken").touch()
    with pytest.raises(Unavailable, match=r"exit code 1; it said: no luck with \[secret MARKED\]"):
        async with world.entered(own=world.command(env_from=["MARKED"])):
            pass


async def test_a_server_that_dies_in_a_call_leaves_it_unknown_and_is_started_again(world: McpWorld) -> None:
    async with world.entered(own=world.command()):
        result, after = await world.call("bump_and_die"), await world.call("bump", {"name": "again"})

    assert result.outcome is Outcome.INTERRUPTED
    assert result.text.startswith("[error] interrupted: the MCP server 'own' went away while this call was in flight")
    assert "ended by signal 9" in result.text
    assert "It has NOT been retried. Verify the state" in result.text
    assert after.text == "bumped again"
    assert (world.effects(), len(world.pids())) == (["bump", "again"], 2)


async def test_calls_beside_the_one_that_killed_it_are_unknown_too(world: McpWorld) -> None:
    found: list[ToolResult] = []

    async def call(tool: str) -> None:
        found.append(await world.call(tool))

    async with world.entered(own=world.command()), anyio.create_task_group() as tasks:
        tasks.start_soon(call, "hang")
        await eventually(lambda: world.effects() == ["hanging"])
        tasks.start_soon(call, "die")

    assert [result.outcome for result in found] == [Outcome.INTERRUPTED] * 2


async def test_a_child_that_holds_its_output_does_not_hide_its_death(world: McpWorld) -> None:
    async with world.entered(own=world.command(timeout_s=30)):
        result = await world.call("orphan")
        assert result.outcome is Outcome.INTERRUPTED
        assert (await world.call("bump")).outcome is Outcome.OK

    assert [pid for pid in world.pids() if is_alive(pid)] == []


async def test_a_call_without_an_answer_times_out_and_a_server_that_still_answers_is_kept(
    world: McpWorld,
) -> None:
    async with world.entered(own=world.command(timeout_s=1.0)):
        result = await world.call("hang")
        shorter = await world.call("hang", deadline_s=0.1)
        while (await world.call("bump")).outcome is not Outcome.OK:
            pass  # the machine has so much to do that a second is too short

    assert result.outcome is Outcome.TIMEOUT
    assert "did not answer within 1 s. Whether it took effect is unknown. It has NOT been retried." in result.text
    assert "within 0.1 s" in shorter.text
    assert len(world.pids()) == 1


async def test_a_server_that_answers_nothing_any_more_is_started_again(
    world: McpWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "PROBE_S", 0.2)
    async with world.entered(own=world.command()):
        os.kill(world.pids()[0], signal.SIGSTOP)
        assert (await world.call("bump", deadline_s=0.2)).outcome is Outcome.TIMEOUT
        after = await world.call("bump", {"name": "again"})

    assert (after.text, len(world.pids())) == ("bumped again", 2)
    assert not is_alive(world.pids()[0])


async def test_a_server_that_keeps_dying_is_given_up_and_says_that_nothing_was_done(world: McpWorld) -> None:
    async with world.entered(own=world.command(restarts=1)):
        assert (await world.call("die")).outcome is Outcome.INTERRUPTED
        assert (await world.call("die")).outcome is Outcome.INTERRUPTED
        result = await world.call("bump")

    assert result.outcome is Outcome.ERROR
    assert result.text.startswith(
        "[error] nothing was done: the MCP server 'own' cannot be used: it was ended by signal"
    )
    assert (world.effects(), len(world.pids())) == ([], 2)


async def test_a_cancelled_call_is_told_to_the_server(world: McpWorld) -> None:
    async with world.entered(own=world.command()):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(world.call, "hang")
            await eventually(lambda: world.effects() == ["hanging"])
            tasks.cancel_scope.cancel()
        assert (await world.call("bump")).outcome is Outcome.OK


@pytest.mark.parametrize(
    ("definition", "needs", "said"),
    [
        ({"command": ["no-such-program-of-onward"]}, Needs.PROVIDER, "'no-such-program-of-onward' cannot be started"),
        ({"command": ["sh", "-c", "echo sorry >&2; exit 3"]}, Needs.PROVIDER, "exit code 3; it said: sorry"),
        ({"command": ["sh", "-c", "echo no json"]}, Needs.PROVIDER, "it ended with exit code 0"),
        ({"command": ["cat"], "start_timeout_s": 5}, Needs.PROVIDER, "the MCP server 'bad' cannot be used"),
        ({"command": ["sleep", "60"], "start_timeout_s": 0.2}, Needs.PROVIDER, "did not list its tools within 0.2 s"),
        ({"command": ["cat"], "env_from": ["NOT_SET"]}, Needs.KEY, "NOT_SET (env_from of the MCP server 'bad')"),
    ],
)
async def test_one_that_cannot_be_used_is_said_with_its_reason_and_the_others_are_ended(
    world: McpWorld, definition: dict[str, object], needs: Needs, said: str
) -> None:
    with pytest.raises(Unavailable) as raised:
        async with world.entered(bad=definition, own=world.command()):
            pytest.fail("it was entered")

    assert said in str(raised.value)
    assert raised.value.needs is needs
    assert [pid for pid in world.pids() if is_alive(pid)] == []


async def test_a_server_that_is_still_starting_is_not_waited_for_when_another_cannot_be_used(world: McpWorld) -> None:
    began = anyio.current_time()
    with pytest.raises(Unavailable, match="cannot be started"):
        async with world.entered(bad={"command": ["no-such-program-of-onward"]}, slow={"command": ["sleep", "60"]}):
            pytest.fail("it was entered")

    assert anyio.current_time() - began < CLOSE_S


async def test_without_the_sdk_the_remedy_is_said(world: McpWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "onward.native.mcp.server", raising=False)
    monkeypatch.setitem(sys.modules, "mcp", None)

    with pytest.raises(Unavailable, match=r"pip install 'mcp>=2\.3'") as raised:
        async with world.entered(own=world.command()):
            pytest.fail("it was entered")
    assert raised.value.needs is Needs.PROVIDER


async def test_a_run_without_servers_starts_nothing(world: McpWorld) -> None:
    async with world.entered():
        assert world.tools == {}


async def test_a_stubborn_server_is_killed_at_the_end(world: McpWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "STDIN_GRACE_S", 0.3)
    monkeypatch.setattr(stdio, "TERM_GRACE_S", 0.3)
    (world.top / "stubborn").touch()
    (world.top / "deaf").touch()
    async with world.entered(own=world.command()):
        pass

    assert not is_alive(world.pids()[0])


async def test_an_error_in_the_run_and_its_cancellation_end_the_servers_too(world: McpWorld) -> None:
    with pytest.RaisesGroup(pytest.RaisesExc(ZeroDivisionError, match="the run's own")):
        async with world.entered(own=world.command()):
            raise ZeroDivisionError("the run's own")
    with anyio.CancelScope() as scope:
        async with world.entered(own=world.command()):
            scope.cancel()
            await anyio.sleep_forever()

    assert len(world.pids()) == 2
    assert [pid for pid in world.pids() if is_alive(pid)] == []


async def test_descriptors_and_threads_stay_as_many_over_many_runs(world: McpWorld) -> None:
    counts = []
    for _ in range(6):
        async with world.entered(own=world.command()):
            await world.call("bump")
        counts.append(len(os.listdir("/proc/self/fd")))

    assert counts[1:] == [counts[1]] * 5


async def test_bad_tools_of_a_server_do_not_hide_its_good_ones(world: McpWorld) -> None:
    bad = {"bad args": {"type": "object", "properties": {"a b": {}}}, "fine tool!": {"type": "object"}, "": {}}
    bad[""] = {"type": "object"}
    (world.top / "tools.json").write_text(json.dumps(bad))
    async with world.entered(own=world.command()):
        names = [name for name in world.tools if "fine" in name or "bad" in name]
        described = world.tools[names[0]].spec.description
        result = await partial(world.call, names[0].removeprefix("mcp__own__"))()

    assert names == ["mcp__own__fine_tool__51e6d1a5"]
    assert described.startswith(r"\u{1b}[2Kmore\u{200b}!!!")
    assert result.text == "[error] unknown tool fine tool!"


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except FileNotFoundError:
        return False
