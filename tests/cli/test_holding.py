"""hold and release: what is said, and what is shown of held and quarantined runs."""

import json

from onward.core.records import RunQuarantined
from tests.cli.serving import Cli, Daemon


def test_runs_are_held_and_released_and_the_status_says_so(daemon: Daemon, cli: Cli) -> None:
    run = daemon.start()
    said = cli("hold", "--reason", "an upgrade")
    assert (said.returncode, said.stdout) == (0, "")
    assert "1 at work goes on until they rest. They go on with: onward release --all" in said.stderr
    assert "no run is entered (asked: an upgrade)" in cli("status").stdout
    assert json.loads(cli("status", "--json").stdout)["hold"]["reasons"] == {"asked": "an upgrade"}
    assert f"{run} is released" in cli("release", run[:-1]).stderr
    assert "all runs are released" in cli("release", "--all").stderr
    assert "nothing was held" in cli("release", "--all").stderr
    assert daemon.operations.releases == [run, None, None]
    assert "no run is entered" not in cli("status").stdout


def test_a_release_of_nothing_in_particular_is_refused(daemon: Daemon, cli: Cli) -> None:
    run = daemon.start()
    for words in ((), (run, "--all")):
        refused = cli("release", *words)
        assert (refused.returncode, "which run to release, or --all" in refused.stderr) == (2, True)
    assert cli("release", "worker-none").returncode == 4
    assert daemon.operations.releases == []


def test_a_quarantined_run_is_shown_with_what_is_to_be_done(daemon: Daemon, cli: Cli) -> None:
    run = daemon.start()
    reason = "the daemon died while this run was being entered"
    daemon.append(run, RunQuarantined(by="daemon", reason=reason))
    daemon.operations.recovery |= {"reasons": [{"run_id": run, "outcome": "quarantined", "reason": reason}]}
    assert f"onward revive {run}" in cli("show", run).stdout
    assert "revive (the daemon died" in cli("ps").stdout
    assert f"{run} quarantined: {reason}\n             -> onward revive {run}" in cli("status").stdout
