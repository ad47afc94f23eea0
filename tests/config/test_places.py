import os
import subprocess
import sys
from pathlib import Path

import pytest

import onward
from onward.config import places
from onward.config.places import Places, check_socket, find_places, find_sockets, shipped
from onward.errors import BadConfiguration, NotFound

VARIABLES = ("ONWARD_HOME", "ONWARD_SOCKET", "STATE_DIRECTORY", "CONFIGURATION_DIRECTORY", "RUNTIME_DIRECTORY")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person's home, with nothing else in the environment."""
    for name in (*VARIABLES, "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "run").mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    return tmp_path


def test_a_person_s_daemon_follows_xdg(home: Path) -> None:
    found = find_places()
    assert found.config_dirs == (home / ".config/onward", Path("/etc/onward"))
    assert found.runs_dir == home / ".local/state/onward/runs"
    assert found.socket == home / "run/onward/onward.sock"
    assert found.settings_files[0] == home / ".config/onward/onward.toml"
    assert found.agent_dirs[-1] == shipped("config") / "agents"


def test_onward_home_holds_everything(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.setenv(name, "/elsewhere")
    monkeypatch.delenv("ONWARD_SOCKET")
    monkeypatch.setenv("ONWARD_HOME", str(home / "trial"))
    found = find_places()
    assert found.config_dirs == (home / "trial/config",)
    assert (found.runs_dir, found.socket) == (home / "trial/runs", home / "trial/onward.sock")
    assert find_sockets() == (home / "trial/onward.sock",)


def test_a_relative_onward_home_becomes_absolute(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    monkeypatch.setenv("ONWARD_HOME", "trial")
    assert find_places().runs_dir == home / "trial/runs"


def test_under_systemd_the_first_path_of_each_directory_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATE_DIRECTORY", "/var/lib/onward:/var/lib/onward/tmp")
    monkeypatch.setenv("CONFIGURATION_DIRECTORY", "/etc/onward")
    monkeypatch.setenv("RUNTIME_DIRECTORY", "/run/onward")
    found = find_places()
    assert found.config_dirs == (Path("/etc/onward"),)
    assert (found.runs_dir, found.socket) == (Path("/var/lib/onward/runs"), Path("/run/onward/onward.sock"))


def test_a_client_looks_for_the_person_s_daemon_then_for_the_machine_s(home: Path) -> None:
    assert find_sockets() == (home / "run/onward/onward.sock", Path("/run/onward/onward.sock"))


def test_onward_socket_is_the_only_place_for_daemon_and_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONWARD_SOCKET", "/srv/o.sock")
    assert find_sockets() == (Path("/srv/o.sock"),)
    assert find_places().socket == Path("/srv/o.sock")


@pytest.mark.parametrize("runtime", ["relative/run", "/does/not/exist", "/etc/hostname", "/tmp/planted"])
def test_without_an_own_runtime_directory_the_socket_stands_beside_the_runs(
    runtime: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
    assert find_places().socket == home / ".local/state/onward/onward.sock" == find_sockets()[0]


def test_a_runtime_directory_of_another_user_is_not_used(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: os.geteuid() + 1)
    assert find_places().socket == home / ".local/state/onward/onward.sock"


def test_a_socket_path_of_107_bytes_is_the_longest() -> None:
    longest = Path("/" + "é" * 53)
    assert check_socket(longest) == longest
    with pytest.raises(BadConfiguration, match=r"has 108 bytes; .* at most 107\. Choose a shorter ONWARD_HOME"):
        check_socket(Path(f"{longest}x"))


def test_a_script_is_found_in_the_person_s_directory_before_the_shipped_one(home: Path) -> None:
    found = find_places()
    assert found.find_script("rehearsal.json") == shipped("config") / "rehearsal.json"
    own = home / ".config/onward/rehearsal.json"
    own.parent.mkdir(parents=True)
    own.write_text("{}")
    assert found.find_script("rehearsal.json") == own
    assert found.find_script(str(own)) == own
    with pytest.raises(NotFound, match=r"no script 'other\.json'"):
        found.find_script("other.json")


def test_shipped_data_of_an_installed_package_stands_inside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site-packages/onward"
    (package / "_data/config").mkdir(parents=True)
    monkeypatch.setattr(onward, "__file__", str(package / "__init__.py"))
    assert shipped("config") == package / "_data/config"
    with pytest.raises(BadConfiguration, match="install Onward again"):
        shipped("systemd")


def test_finding_the_socket_is_cheap() -> None:
    """The command line pays for every import of `onward.config.places`."""
    code = (
        "import sys, onward.config.places as p; p.find_sockets(); "
        "print(sorted({'pydantic', 'asyncio', 'platformdirs', 'tomllib'} & {m.partition('.')[0] for m in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_command_means_the_machines_service_where_only_that_is_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    service = Places(config_dirs=(), runs_dir=tmp_path / "lib/runs", socket=tmp_path / "run/onward.sock")
    own = tmp_path / "own.sock"
    monkeypatch.setattr(places, "SERVICE", service)
    monkeypatch.setattr(places, "find_sockets", lambda: (own, service.socket))
    assert places.find_client_places() != service
    service.socket.parent.mkdir(exist_ok=True)
    service.socket.touch()
    assert places.find_client_places() == service
    own.touch()
    assert places.find_client_places() != service
