"""`onward service` without a systemd: what it places, refuses, goes back to and removes."""

import os
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from onward.cli import service
from onward.cli.scope import Scope
from onward.errors import BadRequest, OnwardError

# Its daemon is a process with the name that one of `current` has; it does not start where a file `broken` stands.
SYSTEMCTL = """#!/bin/bash
cd "${0%/*}"
case " $* " in
  *" --version "*) echo "systemd 255" ;;
  *" show "*) cat pid 2>/dev/null || echo 0 ;;
  *" enable --now "*) if [ ! -e pid ]; then exec "$0" restart onward.service; fi ;;
  *" restart "* | *" disable "*)
    if [ -e pid ]; then kill "$(cat pid)"; rm pid; fi ;;&
  *" restart "*)
    daemon=$(readlink -f ../versions/current)
    if [ -e "$daemon/broken" ]; then echo "Job for onward.service failed" >&2; exit 1; fi
    (exec -a "$daemon/bin/python" sleep 600 <&- >&- 2>&-) & echo $! >pid ;;
esac
"""


@pytest.fixture
def scope(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scope]:
    """The places of a user whose systemctl is a script."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in {"systemctl": SYSTEMCTL, "loginctl": "#!/bin/sh\necho yes\n"}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    monkeypatch.delenv("PYTHONPATH", raising=False)  # or what is installed would be this checkout
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    made = Scope(user=True, units=tmp_path / "units", versions=tmp_path / "versions", config=tmp_path / "config")
    yield made
    service.uninstall(made)


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


def wheel_of(version: str, where: Path, *, broken: bool = False) -> Path:
    """Make a wheel of so little that pip is done with it at once."""
    wheel = where / f"onward-{version}-py3-none-any.whl"
    info, data = f"onward-{version}.dist-info", f"onward-{version}.data/data"
    files = {
        "onward/__init__.py": "def main() -> None: ...\n",
        "onward/_data/systemd/onward-user.service": f"# of {version}\n",
        "onward/_data/systemd/onward.service.d/254.conf": f"# of {version}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: onward\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[console_scripts]\nonward = onward:main\n",
        **({f"{data}/broken": ""} if broken else {}),
        f"{info}/RECORD": "",
    }
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return wheel


def running(scope: Scope) -> str | None:
    """Return the version whose daemon runs."""
    pid = scope.units.with_name("bin") / "pid"
    if not pid.exists():
        return None
    program = Path(f"/proc/{pid.read_text().strip()}/cmdline").read_text().split("\0")[0]
    return Path(program).parent.parent.name


def installed(scope: Scope) -> tuple[str | None, str, str]:
    """Return which version runs, which is to run, and whose unit is placed."""
    return running(scope), scope.current.resolve().name, (scope.units / "onward.service").read_text()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_is_said_to_run_is_what_runs(scope: Scope, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Through an install over a running service, and an upgrade to a version that does not start."""
    service.install(wheel_of("1", tmp_path), scope)
    assert installed(scope) == ("1", "1", "# of 1\n")
    service.install(wheel_of("2", tmp_path), scope)
    assert installed(scope) == ("2", "2", "# of 2\n")
    with pytest.raises(BadRequest, match="2 is what runs now"):
        service.upgrade(wheel_of("2", tmp_path), scope)

    for linked in ("2", "1"):
        scope.link(linked)
        with pytest.raises(OnwardError, match="2 runs again, because 3 does not start"):
            service.upgrade(wheel_of("3", tmp_path, broken=True), scope)
        assert installed(scope) == ("2", "2", "# of 2\n")
        assert "3 does not start: systemctl --user restart onward.service failed" in capsys.readouterr().err
    service.upgrade(wheel_of("3", tmp_path), scope)
    assert installed(scope) == ("3", "3", "# of 3\n")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_does_not_start_and_has_nothing_before_it_may_be_installed_again(scope: Scope, tmp_path: Path) -> None:
    with pytest.raises(OnwardError, match="Job for onward"):
        service.install(wheel_of("1", tmp_path, broken=True), scope)
    assert running(scope) is None
    service.install(wheel_of("1", tmp_path), scope)
    assert installed(scope) == ("1", "1", "# of 1\n")
