"""A person who is not looking is told of a question while the daemon works, whatever lies in its own file of facts."""

import json
import signal
import sys

import pytest

from tests.e2e.instances import Instance, Json, shell

TELL = "import os, pathlib, sys; pathlib.Path(sys.argv[1], str(os.getpid())).write_text(sys.stdin.read())"
ASKS: Json = {"calls": [{"name": "ask_user", "arguments": {"question": "Which colour?"}}]}
ASKS_BESIDE: Json = {"calls": [*shell("sleep 600")["calls"], *ASKS["calls"]]}
DONE: Json = {"text": "done"}


def with_hook(instance: Instance) -> Instance:
    (instance.home / "told").mkdir()
    config = instance.home / "config"
    (config / "agents").mkdir(parents=True, mode=0o700)
    config.chmod(0o700)
    hook = [sys.executable, "-c", TELL, str(instance.home / "told")]
    (config / "onward.toml").write_text(f"[notify]\nhook = {hook!r}\n")
    (config / "agents" / "asking.toml").write_text('sandbox = "none"\ntools = ["shell", "ask_user"]\n')
    return instance


def told(instance: Instance) -> list[str]:
    return [path.read_text() for path in (instance.home / "told").iterdir()]


def test_a_person_is_told_at_once_also_beside_a_command_that_runs(instance: Instance) -> None:
    """Not at the next start, and not when the command has ended."""
    with_hook(instance).start()
    first = instance.run(ASKS, DONE, agent="asking")
    instance.until(lambda: any(first in text for text in told(instance)))
    second = instance.run(ASKS_BESIDE, DONE, agent="asking")
    instance.until(lambda: any(second in text for text in told(instance)))

    assert len(told(instance)) == 2
    assert "ToolCallDone" not in instance.types(second)


def test_the_damaged_caches_of_one_run_cost_nobody_anything(instance: Instance) -> None:
    """They are made anew from the journal: the daemon starts, lists all runs and knows what they ask."""
    with_hook(instance).start()
    damaged, other = (instance.run(ASKS, DONE, agent="asking") for _ in range(2))
    instance.until(lambda: len(told(instance)) == 2)
    instance.until(lambda: all(instance.show(run_id)["waiting_on"] == "human" for run_id in (damaged, other)))
    before = instance.get("/v1/interactions").body
    instance.kill(signal.SIGTERM)
    index = instance.runs / damaged / "meta.json"
    index.write_text(json.dumps({**json.loads(index.read_text()), "totals": 5}))
    listed = instance.runs / other / "interactions.json"
    listed.write_text(json.dumps({**json.loads(listed.read_text()), "interactions": [{"run_id": other}]}))

    instance.start()

    instance.until(lambda: instance.get("/v1/interactions").body == before)
    assert {run["totals"]["cost_usd"] for run in instance.listed().values()} == {0.0}


@pytest.mark.parametrize("damage", ["a directory", "a fact by hand"])
def test_a_damaged_file_of_facts_keeps_no_daemon_from_starting(damage: str, instance: Instance) -> None:
    """daemon.jsonl is a help, not the truth."""
    with_hook(instance)
    instance.runs.mkdir(mode=0o700)
    facts = instance.runs / "daemon.jsonl"
    if damage == "a directory":
        facts.mkdir()
    else:
        facts.write_text(
            '{"seq":1,"type":"NotificationQueued","delivery_id":"x.q1","notification":{},"targets":["hook"]}\n'
        )
    instance.start()
    run_id = instance.run(ASKS, DONE, agent="asking")
    instance.until(lambda: any(run_id in text for text in told(instance)))
