"""`[mcp.NAME]` in an agent definition."""

from pathlib import Path
from typing import Any

import pytest

from onward.config.agents import AgentDefinition, read_agent

GITHUB = """
[mcp.github]
command = ["github-mcp-server", "stdio"]
args = ["--read-only"]
env_from = ["GITHUB_TOKEN"]
tools = ["get_*", "list_*"]
[mcp.github.effects]
"get_*" = "read"
[mcp.far]
url = "https://example.org/mcp"
headers_from = { Authorization = "Bearer FAR_TOKEN", X-Key = "FAR_KEY" }
timeout_s = 30
restarts = 0
"""


def read(tmp_path: Path, text: str) -> AgentDefinition | str:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    tmp_path.chmod(0o700)
    found = read_agent(file)
    return found if isinstance(found, AgentDefinition) else "\n".join(map(str, found)).replace(f"{tmp_path}/", "")


def test_servers_are_pinned_whole_and_read_back(tmp_path: Path) -> None:
    definition = read(tmp_path, GITHUB)
    assert isinstance(definition, AgentDefinition)

    pinned: dict[str, Any] = definition.pinned()

    assert set(pinned["mcp"]) == {"github", "far"}
    assert pinned["mcp"]["github"]["command"] == ["github-mcp-server", "stdio"]
    assert pinned["mcp"]["github"]["effects"] == {"get_*": "read"}
    assert pinned["mcp"]["far"]["headers_from"]["Authorization"] == "Bearer FAR_TOKEN"
    assert AgentDefinition.model_validate(pinned) == definition


def test_a_command_may_be_one_word(tmp_path: Path) -> None:
    definition = read(tmp_path, '[mcp.a]\ncommand = "server"')
    assert isinstance(definition, AgentDefinition)
    assert definition.mcp["a"].command == ("server",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[mcp.a]", "mine.toml:1: mcp.a: give either command = [...] or url = '...'; correct it"),
        ("[mcp.a]\ncommand = 'x'\nurl = 'http://x'", "mine.toml:1: mcp.a: give either command = [...] or url = '...'"),
        ("\n[mcp.a]\ncommand = 'x'\ncomand = 'y'", "mine.toml:4: unknown key 'mcp.a.comand'; did you mean 'command'?"),
        ("[mcp.a]\ncommand = 'x'\nenv = { A = 'b' }", "mine.toml:3: unknown key 'mcp.a.env'"),
        ("[mcp.a]\ncommand = []", "mine.toml:1: mcp.a: give either command"),
        ("[mcp.a]\ncommand = ' '", "mine.toml:2: mcp.a.command: the first word is the program to start"),
        ("[mcp.'a b']\ncommand = 'x'", "String should match pattern"),
        ("[mcp.a]\nurl = 'ftp://x'", "mine.toml:2: mcp.a.url: an endpoint begins with https:// or http://"),
        ("[mcp.a]\nurl = 'https://x'\nargs = ['y']", "mine.toml:1: mcp.a: args and env_from belong to a command"),
        ("[mcp.a]\ncommand = 'x'\nheaders_from = { A = 'B' }", "mine.toml:1: mcp.a: headers_from belongs to a url"),
        ("[mcp.a]\nurl = 'http://x'\nheaders_from = { A = 'B' }", "a secret goes over https:// only"),
        ("[mcp.a]\nurl = 'https://x'\nheaders_from = { Host = 'B' }", "'Host' is no header that can be set here"),
        ("[mcp.a]\nurl = 'https://x'\nheaders_from = { A = 'Basics B' }", "only Bearer, Basic, Token may stand"),
        ("[mcp.a]\ncommand = 'x'\nenv_from = ['ONWARD_HOME']", "mine.toml:3: mcp.a.env_from: ONWARD_HOME is Onward's"),
        ("[mcp.a]\ncommand = 'x'\ntimeout_s = 0", "mine.toml:3: mcp.a.timeout_s: Input should be greater than 0"),
        ("[mcp.a]\ncommand = 'x'\nrestarts = -1", "mine.toml:3: mcp.a.restarts: Input should be greater than or equal"),
        ("[mcp.a.effects]\n'*' = 'none'\n[mcp.a]\ncommand = 'x'", "Input should be 'read', 'idempotent', 'write' or"),
        ("mcp = 3", "mine.toml:1: mcp: Input should be a valid dictionary"),
        ("[mcp]\na = 3", "mine.toml:2: mcp.a: Input should be a valid dictionary"),
    ],
)
def test_a_mistake_is_said_with_its_line_and_remedy(tmp_path: Path, text: str, said: str) -> None:
    found = read(tmp_path, text)
    assert isinstance(found, str)
    assert said in found


@pytest.mark.parametrize(
    "text",
    [
        "[mcp.a]\nurl = 'https://user:hunter2-hunter2@x/'",
        "[mcp.a]\ncommand = 'x'\nenv_from = ['hunter2-hunter2']",
        "[mcp.a]\nurl = 'https://x/'\nheaders_from = { A = 'Bearer hunter2-hunter2' }",
    ],
)
def test_a_secret_that_was_put_where_its_name_belongs_is_refused_and_not_repeated(tmp_path: Path, text: str) -> None:
    found = read(tmp_path, text)
    assert isinstance(found, str)
    assert "hunter2" not in found
