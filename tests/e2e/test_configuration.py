"""Configuration files that nobody means, with a real daemon: it goes on, says what is wrong, and starts again."""

import os
import signal
from pathlib import Path

import pytest

from tests.cli.serving import Cli
from tests.config.test_hostile import HOSTILE, NAMES
from tests.e2e.instances import Instance, Json


@pytest.fixture
def config(instance: Instance) -> Path:
    directory = instance.home / "config"
    (directory / "agents").mkdir(parents=True, mode=0o700)
    directory.chmod(0o700)
    return directory


def config_of(instance: Instance) -> Json:
    told: Json = instance.get("/v1/daemon").body
    return {**told["config"], **told["limits"]}


def test_no_agent_file_ends_a_daemon_or_keeps_one_from_starting(instance: Instance, config: Path) -> None:
    """Each is named as a problem, by every command that tells of it, and the others can be used."""
    instance.start()
    for number, text in enumerate(HOSTILE.values()):
        (config / "agents" / f"bad-{number}.toml").write_text(text)
    for name in NAMES:
        (config / "agents" / os.fsdecode(name)).write_text("")
    bad = len(HOSTILE) + len(NAMES)
    instance.until(lambda: len({p.split(".toml")[0] for p in config_of(instance)["problems"]}) == bad)
    assert instance.kill(signal.SIGTERM) == 0
    instance.start()
    cli = Cli(instance.home, instance.socket)
    for words in (["status"], ["agents", "check"], ["reload"]):
        shown = cli(*words)
        assert shown.returncode in (0, 1, 78), shown.stderr
        assert "Traceback" not in shown.stderr
        assert "a bug" not in shown.stderr
    assert instance.run({"text": "done"})


@pytest.mark.parametrize(
    "what", [what if what == "brackets" else pytest.param(what, marks=pytest.mark.slow) for what in HOSTILE]
)
def test_no_settings_file_ends_a_daemon_that_runs(what: str, instance: Instance, config: Path) -> None:
    """What was good before holds, and the next good save is used."""
    instance.start()
    (config / "onward.toml").write_text(HOSTILE[what])
    instance.until(lambda: not config_of(instance)["ok"])
    assert config_of(instance)["max_active_runs"] == 50
    (config / "onward.toml").write_text("[daemon]\nmax_active_runs = 10000\n")
    instance.until(lambda: config_of(instance)["max_active_runs"] == 10000)
