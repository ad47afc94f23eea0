"""Files that no person means: each is a problem with its remedy, never an end of whoever reads it."""

import os
from pathlib import Path

import orjson
import pytest

from onward.config.agents import load_agents
from onward.config.places import Places
from onward.config.settings import load_settings
from onward.errors import BadConfiguration

DEEP = 20_000
HOSTILE = {
    "brackets": "x = " + "[" * DEEP,
    "closed brackets": "x = " + "[" * DEEP + "]" * DEEP,
    "braces": "x = " + "{a=" * DEEP,
    "dots": ".".join(["daemon"] * DEEP) + " = 1",
    "a table of dots": f"[{'.'.join(['providers'] * DEEP)}]\nx = 1",
    "dots in braces": "x = {" + ".".join(["a"] * DEEP) + " = 1}",
    "digits": "x = " + "9" * 5000,
    "digits in a setting": "[daemon]\nmax_active_runs = " + "9" * 5000,
    "hex digits in a setting": "[daemon]\nmax_active_runs = 0x" + "f" * 5000,
    "hex digits in a limit": "[limits]\nturns = 0x" + "f" * 5000,
    "a day that is not": "x = 2026-02-31",
    "infinity": "[daemon]\nentry_rate = inf\n[limits]\ncost_usd = inf",
    "no number": "[daemon]\nentry_rate = nan\n[limits]\ncost_usd = nan",
    "nothing but zeroes": "\0" * 500,
}
NAMES = [b"a\xffb.toml", b"\xed\xa0\x80.toml", b"a\nb.toml", b"a b.toml", b"\x1b[2J.toml"]

pytestmark = pytest.mark.usefixtures("no_environment")


@pytest.mark.parametrize("what", HOSTILE)
def test_an_agent_that_cannot_be_read_is_a_problem_of_its_own(what: str, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text(HOSTILE[what])
    (tmp_path / "good.toml").write_text("")
    agents, problems = load_agents([tmp_path])
    assert list(agents) == ["good"]
    assert {problem.file.name for problem in problems} == {"bad.toml"}
    assert all(problem.remedy and orjson.dumps(problem.to_json()) for problem in problems)


@pytest.mark.parametrize("what", HOSTILE)
def test_settings_that_cannot_be_read_are_refused(what: str, tmp_path: Path) -> None:
    (tmp_path / "onward.toml").write_text(HOSTILE[what])
    places = Places(config_dirs=(tmp_path,), runs_dir=tmp_path / "runs", socket=tmp_path / "s.sock")
    with pytest.raises(BadConfiguration, match=r"onward\.toml"):
        load_settings(places)


@pytest.mark.parametrize("name", NAMES)
def test_a_file_whose_name_is_no_text_can_be_told_of(name: bytes, tmp_path: Path) -> None:
    """Whatever its bytes are, what is said of it can be written as JSON, and to a terminal."""
    (tmp_path / os.fsdecode(name)).write_text("")
    agents, problems = load_agents([tmp_path])
    assert agents == {}
    (problem,) = problems
    assert orjson.loads(orjson.dumps(problem.to_json()))["what"].endswith("is no name for an agent")
    assert str(problem).encode()
