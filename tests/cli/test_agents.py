"""Agent definitions are listed, and checked without a daemon: file, line, remedy."""

import json
from pathlib import Path

import pytest

from tests.cli.serving import Cli, Daemon


@pytest.fixture
def own(cli: Cli) -> Path:
    directory = cli.home / "config" / "agents"
    directory.mkdir(parents=True, mode=0o700)
    return directory


def test_the_daemons_agents_are_listed(daemon: Daemon, cli: Cli) -> None:
    shown = cli("agents")
    assert (shown.returncode, "worker" in shown.stdout, shown.stderr) == (0, True, "")


def test_without_a_daemon_the_files_are_read(own: Path, cli: Cli) -> None:
    (own / "mine.toml").write_text('description = "by\\u001b[2J me"')
    (own / "bad.toml").write_text("tools = 3")
    shown = cli("agents")
    assert (shown.returncode, "mine" in shown.stdout, "\\u{1b}[2J" in shown.stdout) == (0, True, True)
    assert "1 problems with others: onward agents check" in shown.stderr
    known = json.loads(cli("agents", "--json").stdout)
    assert [agent["name"] for agent in known["agents"]] == ["coder", "mine", "rehearsal", "worker"]


def test_what_is_wrong_is_said_with_its_line_and_remedy(own: Path, cli: Cli) -> None:
    assert cli("agents", "check").returncode == 0
    (own / "one.toml").write_text('model = "opneai/gpt"\n')
    (own / "two.toml").write_text('\nfallback = ["scripted/none.json"]\n[limits]\nturn = 3\n')
    (own / "three.toml").write_text('model = "scripted/none.json"\n')
    shown = cli("agents", "check")
    assert (shown.returncode, shown.stderr) == (78, "")
    lines = shown.stdout.splitlines()
    assert len(lines) == 3
    assert lines[0].startswith(f"{own}/one.toml:1: there is no provider 'opneai'; known here: anthropic, openai")
    assert lines[1].startswith(f"{own}/three.toml:1: there is no script 'none.json'")
    assert lines[2] == f"{own}/two.toml:4: unknown key 'limits.turn'; did you mean 'turns'?"
    found = json.loads(cli("agents", "check", "two", "--json").stdout)
    assert (found["line"], found["remedy"]) == (4, "did you mean 'turns'?")


def test_one_agent_or_any_file_can_be_checked(own: Path, cli: Cli) -> None:
    (own / "bad.toml").write_text("tools = 3")
    (cli.home / "draft.toml").write_text("kind = ")
    assert cli("agents", "check", "worker").returncode == 0
    assert cli("agents", "check", "bad").returncode == 78
    shown = cli("agents", "check", "draft.toml")
    assert (shown.returncode, f"{cli.home}/draft.toml:1: not TOML" in shown.stdout) == (78, True)
    assert cli("agents", "check", "nobody").returncode == 4
    assert cli("agents", "check", "./nothing.toml").returncode == 4


def test_a_directory_that_others_can_write_is_named(own: Path, cli: Cli) -> None:
    own.chmod(0o777)
    shown = cli("agents", "check")
    assert (shown.returncode, f"chmod go-w {own}" in shown.stdout) == (78, True)
