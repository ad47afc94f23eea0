"""The wheel holds what the daemon needs when no checkout is there."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built with the hatchling of this environment: no network."""
    target = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    return next(target.glob("onward-*.whl"))


def test_the_wheel_holds_code_types_and_data(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    data = {
        f"onward/_data/{file.relative_to(ROOT)}"
        for folder in ("config", "systemd")
        for file in (ROOT / folder).rglob("*")
        if file.is_file()
    }
    assert {"onward/py.typed", "onward/__init__.py", "onward/_data/config/agents/worker.toml"} <= names
    assert data <= names
    assert not [name for name in names if name.startswith(("tests/", "bench/", "daemon/"))]


def test_the_data_is_found_in_an_unpacked_wheel(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from onward.config.places import shipped; from onward.config.agents import load_agents\n"
        "print(shipped('config'), *load_agents([shipped('config') / 'agents'])[0])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.split() == [f"{tmp_path}/onward/_data/config", "coder", "rehearsal", "worker"]


def test_constraints_name_versions_and_nothing_of_a_machine() -> None:
    header, *lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert header.startswith("# ")
    assert "make constraints" in header
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9._+!-]+", line)] == []
