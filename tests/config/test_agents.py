import json
from pathlib import Path
from typing import get_args

import pytest

from onward.config.agents import (
    AgentDefinition,
    Limits,
    definition_hash,
    load_agents,
    read_agent,
)
from onward.config.places import shipped
from onward.config.stages import ARGUMENTS, TOOLS, Builtin, Human
from onward.core.stages import TRANSITION
from onward.native.tools.registry import builtin_tools

SHIPPED = shipped("config") / "agents"


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A person's own directory of agents."""
    directory = tmp_path / "agents"
    directory.mkdir(mode=0o700)
    return directory


def write(own: Path, text: str, name: str = "mine") -> Path:
    file = own / f"{name}.toml"
    file.write_text(text)
    return file


def only_problem(own: Path) -> str:
    agents, problems = load_agents([own])
    assert (agents, len(problems)) == ({}, 1), problems
    return str(problems[0]).removeprefix(f"{own}/")


def test_the_shipped_agents_are_whole() -> None:
    agents, problems = load_agents([SHIPPED])
    assert problems == []
    assert set(agents) == {"coder", "worker", "rehearsal"}
    assert agents["worker"].tools == get_args(Builtin)
    assert agents["worker"].limits == Limits(turns=200, tool_calls=1000, active_s=14_400, max_revivals=50)
    assert agents["rehearsal"].model == "scripted/rehearsal.json"


def test_the_tools_that_a_definition_may_name_are_those_that_exist() -> None:
    assert {*TOOLS, TRANSITION} == set(builtin_tools())


def test_the_rehearsal_asks_for_its_own_tools_and_finishes() -> None:
    rehearsal = read_agent(SHIPPED / "rehearsal.toml")
    assert isinstance(rehearsal, AgentDefinition)
    turns = json.loads((shipped("config") / "rehearsal.json").read_text())["turns"]
    answers = [answer for turn in turns for answer in (turn if isinstance(turn, list) else [turn])]
    called = [call["name"] for answer in answers for call in answer.get("calls", [])]
    assert set(called) == set(rehearsal.tools)
    assert called[-1] == "finish"


def test_what_a_definition_leaves_out_does_not_limit_but_for_hanging_and_stalling(own: Path) -> None:
    write(own, "")
    definition = load_agents([own])[0]["mine"]
    assert definition == AgentDefinition(kind="native", tools=get_args(Builtin), on_restart="resume", rerun_reads=False)
    assert definition.limits.model_dump(exclude_none=True) == {"call_deadline_s": 600, "max_stalled_revivals": 3}


def test_a_person_s_agent_goes_before_the_shipped_one(own: Path) -> None:
    write(own, "description = 'mine'", "worker")
    agents, problems = load_agents([own, SHIPPED])
    assert (agents["worker"].description, problems) == ("mine", [])
    assert "rehearsal" in agents


def test_a_bad_file_hides_no_other_and_is_not_replaced_by_the_shipped_one(own: Path) -> None:
    write(own, "tools = 3", "worker")
    write(own, "", "good")
    agents, problems = load_agents([own, SHIPPED])
    assert set(agents) == {"coder", "good", "rehearsal"}
    assert [problem.file for problem in problems] == [own / "worker.toml"]


def test_missing_directories_are_empty(tmp_path: Path) -> None:
    assert load_agents([tmp_path / "none"]) == ({}, [])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('\nkind = "cli"\ntransport = "x"', "mine.toml:2: external agents are not supported by this version; use kind"),
        ('kind = "other"', "mine.toml:1: kind: Input should be 'native' (it is 'other')"),
        ("[watchdog]\nidle_s = 1", "mine.toml:1: 'watchdog' is not supported by this version; remove it"),
        (
            "[permissions]\nshell = 'maybe'",
            "mine.toml:2: permissions.shell.0.then: Input should be 'allow', 'ask' or 'd",
        ),
        ("[permissions]\nshel = 'allow'", "there is no tool 'shel' to allow, ask about or deny; known: shell, "),
        (
            "[permissions]\nshell = [{ perfix = 'git push', then = 'ask' }]",
            "'shell' has no argument 'perfix', known: command, timeout_s; meant: 'prefix'?",
        ),
        (
            "[permissions]\nwrite_file = [{ paht = 'x', then = 'deny' }]",
            "'write_file' has no argument 'paht', known: path, content; meant: 'path'?",
        ),
        ("[permissions]\nread_file = [{ prefix = 'x', then = 'deny' }]", "`prefix` tells commands of the shell apart"),
        (
            "[permissions]\nask_user = 'deny'",
            "'ask_user' asks a human by itself; to forbid it, leave it out of `tools`",
        ),
        ("[permissions]\nshell = 'ask'", "it asks or denies, but its tools run without a sandbox"),
        ("[[stages]]\nname = 'a'\nnext = ['b']", "stage 'a' names 'b', which is no stage; known: a"),
        ("[[stages]]\nname = 'a'\nnxt = ['b']", "mine.toml:3: unknown key 'stages.nxt'; did you mean 'next'?"),
        ("[[stages]]\nname = 'a'\ntools = ['shel']", "stage 'a' names the tool 'shel'"),
        ("[limits]\nturns = 1\ncost_usd = 0", "mine.toml:3: limits.cost_usd: Input should be greater than 0"),
        ("sistem_prompt = 'x'", "mine.toml:1: unknown key 'sistem_prompt'; did you mean 'system_prompt'?"),
        ("[limits]\nturn = 3", "mine.toml:2: unknown key 'limits.turn'; did you mean 'turns'?"),
        ("limits.turn = 3", "mine.toml:1: unknown key 'limits.turn'; did you mean 'turns'?"),
        ("[limits]\n\nturns = 0", "mine.toml:3: limits.turns: Input should be greater than or equal to 1 (it is 0)"),
        ("tools = ['shel']", "mine.toml:1: unknown tool 'shel'; did you mean 'shell'?"),
        ("model = 'gpt'", "mine.toml:1: model: String should match pattern"),
        ("on_restart = 'now'", "mine.toml:1: on_restart: Input should be 'resume', 'ask' or 'stop' (it is 'now')"),
        ("kind = native", "mine.toml:1: not TOML: Invalid value; correct this line"),
        ("a = 1\na = 2", "mine.toml:2: not TOML: Cannot overwrite a value"),
        ('system_prompt = """\nturn = 3\n"""\n[limits]\nturn = 3', "mine.toml:5: unknown key 'limits.turn'"),
    ],
)
def test_a_mistake_is_said_with_its_line_and_remedy(text: str, said: str, own: Path) -> None:
    write(own, text)
    assert said in only_problem(own)


@pytest.mark.parametrize("name", ["Worker", "-a", "a_b", "a" * 33, "a b", "ä"])
def test_a_name_that_is_no_agent_s_is_refused(name: str, own: Path) -> None:
    write(own, "", name)
    assert f"{name!r} is no name for an agent; rename it" in only_problem(own)


def test_a_linked_file_is_refused(own: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("")
    (own / "mine.toml").symlink_to(tmp_path / "elsewhere")
    assert only_problem(own).startswith("mine.toml: is a symbolic link and is refused")


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_a_file_that_others_can_write_is_refused(mode: int, own: Path) -> None:
    write(own, "").chmod(mode)
    assert "can be written by others and is refused: chmod go-w" in only_problem(own)


def test_from_a_directory_that_others_can_write_no_agent_is_read(own: Path) -> None:
    write(own, "", "worker")
    own.chmod(0o770)
    agents, problems = load_agents([own, SHIPPED])
    assert set(agents) == {"coder", "rehearsal"}
    assert "can be written by others" in str(problems[0])


def test_the_hash_is_that_of_the_content(own: Path) -> None:
    first, second = (
        read_agent(write(own, text, name))
        for text, name in (("rerun_reads = true\n[limits]\nactive_s = 60", "a"), ("limits.active_s=60.0", "b"))
    )
    assert isinstance(first, AgentDefinition)
    assert isinstance(second, AgentDefinition)
    assert definition_hash(first) != definition_hash(second)
    assert definition_hash(first.model_copy(update={"rerun_reads": False})) == definition_hash(second)
    assert len(definition_hash(first)) == 64


def test_a_pinned_definition_comes_back_the_same() -> None:
    definition = AgentDefinition(model="scripted/x", limits=Limits(turns=3))
    stored = json.loads(json.dumps(definition.pinned()))
    assert AgentDefinition.model_validate(stored) == definition


def test_rules_know_the_arguments_of_every_tool_that_can_be_refused() -> None:
    taken = {name: tuple(tool.spec.parameters["properties"]) for name, tool in builtin_tools().items()}
    assert taken.keys() - ARGUMENTS.keys() == set(get_args(Human))
    assert {name: taken[name] for name in ARGUMENTS} == ARGUMENTS
