"""A secret that the configuration names stands in no file, though nothing has needed it yet."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.instances import Instance, shell

SECRETS = {"HOOK_X": "marked-hook-1234", "GH_PAT": "marked-pat-12345", "MY_CREDENTIAL_Q": "marked-env-12345"}
KEY = "marked-file-1234"

SETTINGS = """
[providers.first]
kind = "openai"
base_url = "http://127.0.0.1:1/v1"
api_key_file = "{key}"
[providers.second]
kind = "openai"
base_url = "http://127.0.0.1:1/v1"
api_key_env = "MY_CREDENTIAL_Q"
[notify.webhooks.team]
url = "https://example.org/x"
secret_env = "HOOK_X"
"""
AGENT = """
tools = ["shell"]
[mcp.github]
command = ["false"]
env_from = ["GH_PAT"]
"""


def written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.write_text(text)
    path.chmod(0o600)
    return path


@pytest.fixture
def instance(make: Callable[..., Instance]) -> Iterator[Instance]:
    made = make(env=SECRETS)
    key = written(made.home / "config" / "key", f"{KEY}\n")
    written(made.home / "config" / "onward.toml", SETTINGS.format(key=key))
    written(made.home / "config" / "agents" / "helped.toml", AGENT)
    yield made


@pytest.mark.parametrize("killed", [False, True], ids=["daemon lives", "daemon killed meanwhile"])
def test_what_a_command_prints_is_masked_before_any_model_or_server_was_used(instance: Instance, killed: bool) -> None:
    instance.start()
    run_id = instance.run(
        shell(f"cat {instance.home}/config/key; tr '\\0' '\\n' < /proc/{instance.pid}/environ; touch printed; sleep 1"),
        {"text": "done"},
    )
    if killed:
        instance.until((instance.workspace / "printed").exists)
        instance.kill()
        instance.start()
    instance.until_status(run_id, "completed")
    (done,) = instance.records(run_id, "ToolCallDone")
    assert "[secret first_key]" in done["result"]
    if os.geteuid() == 0:  # anybody else cannot read the daemon's environment
        assert all(f"[secret {name}]" in done["result"] for name in ("second_key", "HOOK_X", "GH_PAT"))
    instance.until(lambda: not instance.call_dir(run_id).exists())
    kept = [path for path in instance.runs.rglob("*") if path.is_file()]
    assert [path for path in kept if b"marked-" in path.read_bytes()] == []
    assert "marked-" not in instance.log.read_text()
