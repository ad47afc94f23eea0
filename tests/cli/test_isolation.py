"""`status` and `doctor` say how commands are kept apart, and what would keep the daemon from starting again."""

from pathlib import Path

import pytest

from onward.cli import apart
from tests.cli.serving import Cli, Daemon

GROUPS = {
    "kind": "cgroups",
    "reason": "the service manager has delegated /sys/fs/cgroup/x",
    "problem": "memory is enabled\x1b[2J",
    "remedy": "as root: echo",
}


def test_status_names_the_isolation_that_is_in_force(daemon: Daemon, cli: Cli) -> None:
    daemon.operations.isolation = {"kind": "process-groups", "reason": "cgroup v2 is not mounted here"}
    assert "isolation  process groups, no cgroups: cgroup v2 is not mounted here\n" in cli("status").stdout
    daemon.operations.isolation = GROUPS
    lines = cli("status").stdout.splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("isolation"))
    assert "a cgroup for each call: the service manager" in lines[at]
    assert lines[at + 1].strip() == "memory is enabled\\u{1b}[2J"
    assert lines[at + 2].strip() == "-> as root: echo"


def test_doctor_fails_for_a_controller_that_is_in_the_way(daemon: Daemon, cli: Cli) -> None:
    daemon.operations.isolation = GROUPS
    shown = cli("doctor")
    assert shown.returncode == 1
    assert "memory is enabled" in shown.stdout
    assert "-> as root: echo" in shown.stdout


@pytest.mark.parametrize(("enabled", "level"), [("memory pids\n", "fail"), ("\n", "ok")])
def test_doctor_looks_at_the_unit_of_a_daemon_that_does_not_run(tmp_path: Path, enabled: str, level: str) -> None:
    """Files in place of the kernel's."""
    (tmp_path / "cgroup.subtree_control").write_text(enabled)
    (finding,) = apart.left_behind([tmp_path])
    assert finding.level == level
    assert ("cgroup.subtree_control" in finding.remedy) == (level == "fail")
