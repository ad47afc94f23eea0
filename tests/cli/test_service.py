"""`onward service` without a systemd: what it places, refuses, goes back to and removes."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from onward.cli import service
from onward.cli.scope import Scope
from onward.errors import BadRequest

SYSTEMCTL = """#!/bin/sh
case " $* " in
  *" --version "*) echo "systemd 255" ;;
esac
"""


@pytest.fixture
def scope(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scope:
    """The places of a user whose systemctl is a script."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in {"systemctl": SYSTEMCTL, "loginctl": "#!/bin/sh\necho yes\n"}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return Scope(user=True, units=tmp_path / "units", versions=tmp_path / "versions", config=tmp_path / "config")


@pytest.mark.parametrize("own", ["override.conf", None])
def test_uninstall_leaves_the_drop_ins_of_the_administrator(scope: Scope, own: str | None) -> None:
    scope.drop_ins.mkdir(parents=True)
    for name in ("254.conf", "allow-srv-project.conf", *([own] if own else [])):
        (scope.drop_ins / name).write_text("[Service]\n")
    assert service.uninstall(scope) == 0
    left = [str(path.relative_to(scope.units)) for path in scope.units.rglob("*")]
    assert sorted(left) == (["onward.service.d", f"onward.service.d/{own}"] if own else [])


ODD = [f"/srv/a{odd}b" for odd in " \t\n\"'\\%:"]


@pytest.mark.parametrize("path", [*ODD, "/tmp", "/tmp/project"])
def test_a_directory_that_no_unit_file_could_allow_is_refused_with_the_reason(path: str) -> None:
    reason = service.why_not_allowed(Path(path))
    assert reason is not None
    assert ("/var/lib/onward/tmp" if path.startswith("/tmp") else "cannot be named in a unit file") in reason


@pytest.mark.parametrize("path", ["/srv/project", "/home/somebody/Grüße,2", "/tmpfiles", "/var/tmp/x"])
def test_any_other_directory_can_be_allowed(path: str) -> None:
    assert service.why_not_allowed(Path(path)) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="the machine's service is root's")
def test_what_is_refused_is_not_said_to_be_allowed(scope: Scope, tmp_path: Path) -> None:
    (odd := tmp_path / "it's").mkdir()
    with pytest.raises(BadRequest, match="it's"):
        service.allow_path(odd, replace(scope, user=False))
    assert not scope.drop_ins.exists()
