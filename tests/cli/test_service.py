"""`onward service` without a systemd: what it places, refuses, goes back to and removes."""

import os
from pathlib import Path

import pytest

from onward.cli import service
from onward.cli.scope import Scope

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
