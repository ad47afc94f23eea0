"""What a real daemon measures, over its socket and in a file."""

import os
import stat
from pathlib import Path

from tests.e2e.instances import Instance, shell
from tests.supervisor.test_metrics import numbers

ASKER = """
kind = "native"
sandbox = "none"
tools = ["ask_user"]
"""


def test_a_scrape_tells_what_happened_and_no_run_ids(instance: Instance) -> None:
    agents = instance.home / "config" / "agents"
    agents.mkdir(parents=True, mode=0o700)
    (instance.home / "config").chmod(0o700)
    (agents / "asker.toml").write_text(ASKER)
    (agents / "asker.toml").chmod(0o600)
    instance.start()
    first = instance.run(shell("true"), {"text": "Done.", "calls": []})
    instance.until_status(first, "completed")
    asks = {"calls": [{"name": "ask_user", "arguments": {"question": "Which?"}}]}
    second = instance.run(asks, {"text": "Done.", "calls": []}, agent="asker")
    instance.until(lambda: instance.get("/v1/interactions").body["interactions"])
    text = instance.text("/metrics")
    found = numbers(text)
    assert found['onward_runs{status="completed"}'] == 1
    assert found["onward_questions_open"] == 1
    assert found['onward_tool_calls_total{tool="shell",outcome="ok"}'] == 1
    assert found['onward_llm_requests_total{provider="scripted",outcome="ok"}'] == 3
    assert found["onward_journal_flush_seconds_count"] >= 4
    assert 0 < found["onward_journal_flush_seconds_sum"] < 60
    assert found["onward_recovery_seconds"] >= 0
    assert found["onward_configuration_ok"] == 1
    assert first not in text
    assert second not in text
    instance.until(lambda: numbers(instance.text("/metrics"))["onward_event_loop_lag_seconds_count"] >= 1)
    # After a crash: what the runs themselves tell is right at once, counters begin anew.
    instance.kill()
    instance.start()
    again = numbers(instance.text("/metrics"))
    assert again['onward_runs{status="completed"}'] == 1
    assert again["onward_questions_open"] == 1
    assert 'onward_tool_calls_total{tool="shell",outcome="ok"}' not in again


def test_a_textfile_is_whole_readable_and_gone_after_a_clean_stop(instance: Instance, tmp_path: Path) -> None:
    file = tmp_path / "onward.prom"
    instance.env["ONWARD_METRICS__TEXTFILE"] = str(file)
    instance.start()
    instance.until(file.exists)
    assert numbers(file.read_text())['onward_runs{status="completed"}'] == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    instance.kill(15)
    assert not file.exists()
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".tmp")]
