"""The shipped units without a systemd that runs: what they must say, and what they may expose."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.systemd.service import ROOT

UNITS = ROOT / "systemd"
needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze here")


def settings(name: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in (UNITS / name).read_text().splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(key, []).append(value)
    return found


@needs_systemd
def test_what_the_service_exposes_is_what_is_said(tmp_path: Path) -> None:
    shutil.copy(UNITS / "onward.service", tmp_path)
    analyze = ["systemd-analyze", "security", "--offline=yes", "--no-pager", "--threshold=34", "./onward.service"]
    told = subprocess.run(analyze, cwd=tmp_path, capture_output=True, text=True)
    found = re.search(r"Overall exposure level for onward.service: ([\d.]+)", told.stdout)
    assert found is not None, told.stderr
    assert told.returncode == 0
    for page in (ROOT / "README.md", UNITS / "README.md"):
        assert f"exposure {found[1]}" in page.read_text(), page


@needs_systemd
@pytest.mark.parametrize("unit", ["onward.service", "onward-user.service"])
def test_systemd_has_nothing_to_say_about_a_unit(unit: str, tmp_path: Path) -> None:
    """Where the daemon is not installed, a program that is there stands in its place."""
    text = re.sub(r"(?m)^ExecStart=\S+", "ExecStart=/bin/true", (UNITS / unit).read_text())
    (tmp_path / unit).write_text(text)
    analyze = ["systemd-analyze", "verify", "--man=no", f"./{unit}"]
    told = subprocess.run(analyze, cwd=tmp_path, capture_output=True, text=True)
    ours = [line for line in told.stderr.splitlines() if unit in line]
    assert (told.returncode, ours) == (0, [])


@pytest.mark.parametrize("unit", ["onward.service", "onward-user.service"])
def test_tools_outlive_the_daemon(unit: str) -> None:
    """Each of the forbidden ones ends them, takes their files, or keeps a daemon from starting beside them."""
    found = settings(unit)
    assert (found["KillMode"], found["Delegate"], found["Type"]) == (["process"], ["yes"], ["notify"])
    assert (found["OOMPolicy"], found["WatchdogSec"]) == (["continue"], ["30s"])
    for forbidden in ("PrivateTmp", "DynamicUser", "PrivatePIDs", "ProtectControlGroups", "MemoryDenyWriteExecute"):
        assert forbidden not in found
    assert "RestrictNamespaces" not in found


@pytest.mark.parametrize("unit", ["onward.service", "onward-user.service"])
def test_restarts_are_finite_and_a_bad_configuration_is_no_reason_for_one(unit: str) -> None:
    found = settings(unit)
    assert (found["Restart"], found["RestartPreventExitStatus"]) == (["on-failure"], ["78"])
    assert (found["StartLimitIntervalSec"], found["StartLimitBurst"]) == (["300"], ["20"])
