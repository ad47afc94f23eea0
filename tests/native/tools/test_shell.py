"""What the model sees of a command: live and found again later it is the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.core.text import EXCERPT_BYTES, clean
from onward.core.vocabulary import Outcome
from onward.native.tools.process_result import result_of_exit
from onward.native.tools.shell import MAX_COMMAND_BYTES, shell
from onward.ports.process import CallExit, EndedBy
from onward.ports.tool import ToolResult
from tests.native.tools.world import World


def ended(code: int = 0, by: EndedBy = EndedBy.ITSELF, *, intact: bool = True, dropped: int = 0) -> CallExit:
    return CallExit(code=code, ended_by=by, duration_s=12.3, intact=intact, stdout_dropped=dropped)


@pytest.mark.parametrize(
    ("command", "text", "outcome"),
    [
        ("echo hello", "hello", Outcome.OK),
        ("true", "", Outcome.OK),
        ("pwd; echo $HOME", "{workspace}\n{top}", Outcome.OK),
        ("printf out; printf err >&2", "out\n[stderr]\nerr", Outcome.OK),
        ("echo err >&2", "[stderr]\nerr", Outcome.OK),
        ("echo a; exit 3", "a\n[exit code 3]", Outcome.ERROR),
        ("false", "[exit code 1]", Outcome.ERROR),
        ("kill -9 $$", "[ended by signal 9 (SIGKILL)]", Outcome.ERROR),
        (r"printf '\262\377\376\000'", "\ufffd" * 4, Outcome.OK),
    ],
)
async def test_a_command_gives_its_output_then_how_it_ended(
    world: World, command: str, text: str, outcome: Outcome
) -> None:
    result = await world.call(shell, command=command)

    assert result.text == text.format(workspace=world.workspace, top=world.top)
    assert (result.outcome, result.full) == (outcome, None)


async def test_the_command_gets_the_environment_and_directories_of_its_call_only(world: World) -> None:
    await world.call(shell, command="true")

    spec = world.spawner.launched[0]
    assert spec.argv == ("/bin/sh", "-c", "true")
    assert (spec.env, spec.cwd) == (world.context.env, str(world.workspace))
    assert (spec.call_dir, spec.runs_lock, spec.orphan_grace_s) == (world.call_dir, world.top / ".lock", 600.0)


@pytest.mark.parametrize(
    ("timeout_s", "limit_s", "deadline_s"),
    [(None, None, None), (5, None, 5), (None, 7.5, 7.5), (5, 7.5, 5), (9, 7.5, 7.5)],
)
async def test_a_timeout_may_only_shorten_the_limit_of_the_run(
    world: World, timeout_s: float | None, limit_s: float | None, deadline_s: float | None
) -> None:
    world.deadline_s = limit_s
    await world.call(shell, command="true", timeout_s=timeout_s)

    assert world.spawner.launched[0].deadline_s == deadline_s


async def test_a_command_that_linux_cannot_start_is_refused(world: World) -> None:
    longest = "true " + "x" * (MAX_COMMAND_BYTES - 5)

    assert not (await world.call(shell, command=longest)).is_error
    assert f"at most {MAX_COMMAND_BYTES}" in await world.refused(shell, command=longest + "x")
    assert "greater than 0" in await world.refused(shell, command="touch x", timeout_s=0)
    assert world.names() == []


async def test_a_long_output_is_an_excerpt_with_the_whole_beside_it(world: World) -> None:
    result = await world.call(shell, command="seq 100000; echo err >&2; exit 4")

    assert len(result.text.encode()) <= EXCERPT_BYTES
    assert result.text.startswith("1\n2\n")
    assert result.text.endswith("100000\n[stderr]\nerr\n[exit code 4]")
    numbers = "".join(f"{n}\n" for n in range(1, 100001)).encode()
    assert result.full == numbers + b"[stderr]\nerr\n"


@pytest.mark.parametrize("end", [ended(by=EndedBy.DEADLINE, code=-15), ended(dropped=7), None])
async def test_a_result_found_later_is_the_same_as_the_live_one(world: World, end: CallExit | None) -> None:
    world.spawner.ends.append(end)
    live = await world.call(shell, command="echo one; echo two >&2")

    assert result_of_exit(end, *world.spawner.outputs(world.call_dir)) == live


async def test_an_output_that_cannot_be_read_does_not_look_like_a_command_that_never_ran(world: World) -> None:
    (world.call_dir / "stdout").symlink_to(world.workspace / "out")

    result = await world.call(shell, command=f"rm {world.workspace}/out")

    assert result.outcome is Outcome.INTERRUPTED
    assert "its output cannot be read" in result.text
    assert "Whether it took effect is unknown" in result.text


VERIFY = "Verify the state of what it was changing before assuming either way; a file may be half written."


@pytest.mark.parametrize(
    ("end", "outcome", "because", "effect"),
    [
        (ended(by=EndedBy.DEADLINE), Outcome.TIMEOUT, "it was ended at its deadline after 12.3 s", "full effect"),
        (ended(by=EndedBy.CANCEL), Outcome.CANCELLED, "it was ended on request after 12.3 s", "full effect"),
        (ended(by=EndedBy.STOP), Outcome.INTERRUPTED, "ended after 12.3 s because the daemon was stopped", "effect"),
        (ended(by=EndedBy.ORPHAN_GRACE), Outcome.INTERRUPTED, "because no daemon came back", "effect"),
        (ended(intact=False), Outcome.INTERRUPTED, "its output is not what its exit record says", "effect"),
        (None, Outcome.INTERRUPTED, "was lost while this call was in flight", "effect"),
    ],
)
def test_a_command_that_was_cut_off_is_reported_as_unknown(
    end: CallExit | None, outcome: Outcome, because: str, effect: str
) -> None:
    result = result_of_exit(end, b"so far\n", b"")

    assert result.outcome is outcome
    assert result.text.startswith(f"[error] {outcome}: ")
    assert because in result.text
    assert result.text.endswith(
        f". Whether it took {effect} is unknown. It has NOT been retried. {VERIFY}\nWhat it had printed so far:\nso far"
    )
    assert result.evidence == (end and {"exit_code": end.code, "ended_by": end.ended_by.value})


def test_what_was_not_kept_is_counted() -> None:
    assert result_of_exit(ended(dropped=5), b"a", b"") == ToolResult(
        text="a\n[stdout: 5 bytes in its middle were not kept]"
    )


@given(st.binary(max_size=300), st.binary(max_size=300), st.sampled_from([None, ended(), ended(1), ended(-77)]))
def test_any_output_gives_clean_text(stdout: bytes, stderr: bytes, end: CallExit | None) -> None:
    text = result_of_exit(end, stdout, stderr).text

    assert clean(text) == text


@pytest.mark.parametrize(
    "stdout", [b"\xff" * 30_000, b"x" * EXCERPT_BYTES, b"x" * (EXCERPT_BYTES + 1), b"y" * (2 << 20)]
)
def test_the_text_is_bounded_as_it_is_sent(stdout: bytes) -> None:
    result = result_of_exit(ended(2), stdout, b"e" * 70_000)

    assert len(result.text.encode()) <= EXCERPT_BYTES
    assert result.text.endswith("e\n[exit code 2]")
    assert result.full is not None
    assert result.full.startswith(stdout + b"\n[stderr]\neee")
