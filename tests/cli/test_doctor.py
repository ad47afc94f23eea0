"""Each fault of an installation is found, named, and has a remedy; a whole one passes."""

import errno
import json
import os
import resource
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

import onward
from onward.cli import belongings, machine, neighbours
from onward.cli.doctor import LOOKS, installed
from onward.cli.examination import Finding, Installation, Look
from onward.store import lock
from onward.testing.fake_operations import FakeOperations
from tests.cli.serving import Cli, serving


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An instance of its own, without keys, in which nothing is wrong yet."""
    for name in list(os.environ):
        if name.startswith(("ONWARD_", "ANTHROPIC_", "OPENAI_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("ONWARD_HOME", str(tmp_path))
    for directory in ("config/agents", "runs"):
        (tmp_path / directory).mkdir(parents=True, mode=0o700)
    return tmp_path


def faults(look: Look, level: str = "fail") -> list[Finding]:
    found = list(look(installed()))
    assert all(finding.remedy for finding in found if finding.level != "ok")
    return [finding for finding in found if finding.level == level]


def only(look: Look, level: str = "fail") -> Finding:
    (finding,) = faults(look, level)
    return finding


def test_nothing_is_wrong_with_a_whole_installation() -> None:
    assert [(name, finding) for name, look in LOOKS.items() for finding in faults(look)] == []


def test_the_command_shows_all_and_fails_only_for_faults(cli: Cli) -> None:
    shown = cli("doctor", "--json")
    findings = [json.loads(line) for line in shown.stdout.splitlines()]
    assert (shown.returncode, {finding["check"] for finding in findings}) == (0, set(LOOKS))
    (cli.home / "config" / "onward.toml").write_text("[daemon]\nmax_activ_runs = 3\n")
    shown = cli("doctor")
    assert shown.returncode == 1
    assert (
        f"{cli.home}/config/onward.toml:2: unknown key 'max_activ_runs'; did you mean 'max_active_runs'?"
        in shown.stdout
    )
    assert "1 thing is wrong" in shown.stderr


# What belongs to the installation


def test_a_missing_shipped_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(belongings, "SHIPPED", ("onward.toml", "agents/none.toml"))
    assert "lacks agents/none.toml" in only(belongings.package).text


def test_settings_that_others_can_write(home: Path) -> None:
    file = home / "config" / "onward.toml"
    file.write_text("")
    file.chmod(0o666)
    assert f"chmod go-w {file}" in only(belongings.settings).text


def test_an_agent_that_is_wrong_and_a_default_that_is_missing(home: Path) -> None:
    (home / "config" / "agents" / "mine.toml").write_text("[limits]\nturns = 0\n")
    (home / "config" / "onward.toml").write_text('[daemon]\ndefault_agent = "mine"\n')
    wrong, missing = faults(belongings.agents)
    assert f"{home}/config/agents/mine.toml:2: limits.turns" in wrong.text
    assert "the default agent 'mine'" in missing.text


def test_a_runs_directory_that_is_missing_open_or_a_file(home: Path) -> None:
    runs = home / "runs"
    runs.chmod(0o755)
    assert (f"{runs} is open to others (mode 0755)" in only(belongings.runs_directory).text) is True
    runs.rmdir()
    assert faults(belongings.runs_directory) == []  # the first daemon makes it
    runs.write_text("")
    assert "no directory" in only(belongings.runs_directory).text


def a_directory(file: Path) -> None:
    file.mkdir()


def a_link(file: Path) -> None:
    file.symlink_to(file.with_name("elsewhere"))


def a_link_to_a_file(file: Path) -> None:
    file.with_name("elsewhere").write_text("")
    file.symlink_to("elsewhere")


def a_fifo(file: Path) -> None:
    os.mkfifo(file)


@pytest.mark.parametrize("plant", [a_directory, a_link, a_link_to_a_file, a_fifo])
@pytest.mark.parametrize("name", [".lock", ".instance", "daemon.jsonl", "HOLD"])
def test_what_stands_in_place_of_a_file_of_the_daemon(name: str, plant: Callable[[Path], None], home: Path) -> None:
    """Each is opened as a daemon opens it, and left as it is."""
    plant(home / "runs" / name)
    found = only(belongings.runs_directory)
    assert f"in {home}/runs, '{name}'" in found.text
    assert "move it away" in found.remedy
    assert os.path.lexists(home / "runs" / name)


@pytest.mark.parametrize("plant", [a_directory, a_link, a_link_to_a_file, a_fifo])
def test_a_log_that_no_daemon_could_write(plant: Callable[[Path], None], home: Path, cli: Cli) -> None:
    """And `onward up` says the same, at once."""
    plant(home / "daemon.log")
    assert f"{home}/daemon.log cannot be written" in only(belongings.daemon_log).text
    shown = cli("up")
    assert (shown.returncode, "Traceback" in shown.stderr) == (1, False)
    assert f"{home}/daemon.log cannot be written" in shown.stderr


def test_files_as_a_daemon_leaves_them_are_in_order(home: Path) -> None:
    for name in (".lock", ".instance", "daemon.jsonl", "HOLD"):
        (home / "runs" / name).write_text("x")
    (home / "daemon.log").write_text("x")
    assert [*faults(belongings.runs_directory), *faults(belongings.daemon_log)] == []


def test_a_number_out_of_bounds(home: Path) -> None:
    (home / "config" / "onward.toml").write_text("[daemon]\nmax_active_runs = 1000000000\n")
    assert "max_active_runs: Input should be less than or equal to 10000" in only(belongings.settings).text


def test_a_runs_directory_of_somebody_else(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert f"chown -R {os.getuid() + 1} {home / 'runs'}" in only(belongings.runs_directory).remedy


def test_a_runs_directory_on_a_network_file_system(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(belongings, "network_file_system", lambda _: "nfs4")
    assert "lies on nfs4" in only(belongings.runs_directory).text
    (home / "config" / "onward.toml").write_text("[daemon]\nallow_network_fs = true\n")
    assert "lies on nfs4" in only(belongings.runs_directory, "warn").text


@pytest.mark.parametrize("made", [True, False])
@pytest.mark.parametrize(
    ("room", "text"),
    [({"f_bavail": 10}, "0 MiB left"), ({"f_favail": 3}, "3 inodes left"), ({"f_bavail": 10, "f_favail": 3}, "left")],
)
def test_a_runs_directory_without_room(
    room: dict[str, int], text: str, made: bool, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the first daemon has made it, too."""
    if not made:
        (home / "runs").rmdir()

    class Room:
        f_bavail, f_frsize, f_files, f_favail = 1 << 30, 4096, 1 << 20, 1 << 20

    for name, value in room.items():
        setattr(Room, name, value)
    monkeypatch.setattr(os, "statvfs", lambda _: Room)
    found = faults(belongings.runs_directory)
    assert len(found) == len(room)
    assert text in found[0].text


# What answers


def test_a_socket_that_cannot_be_one(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "onward.sock").write_text("precious")
    assert "is no socket" in only(neighbours.socket).text
    monkeypatch.setenv("ONWARD_SOCKET", f"/tmp/{'x' * 120}")
    assert "at most 107" in only(neighbours.socket).text


def test_a_socket_that_others_could_replace_or_use(home: Path) -> None:
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(home / "onward.sock"))
    (home / "onward.sock").chmod(0o666)
    assert "open to everybody" in only(neighbours.socket).text
    (home / "onward.sock").chmod(0o600)
    home.chmod(0o777)
    assert f"chmod go-w {home}" in only(neighbours.socket).remedy


def test_a_daemon_that_listens_elsewhere(home: Path) -> None:
    (home / "config" / "onward.toml").write_text(f'[daemon]\nsocket = "{home}/elsewhere.sock"\n')
    assert f"ONWARD_SOCKET={home}/elsewhere.sock" in only(neighbours.socket).remedy


def test_no_daemon_and_a_stale_socket(home: Path) -> None:
    assert "no daemon runs" in only(neighbours.daemon, "warn").text
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(home / "onward.sock"))
    assert "which a daemon left that was killed" in only(neighbours.daemon, "warn").text


@pytest.fixture
def held(home: Path) -> Iterator[lock.Holder]:
    holder = lock.this_process("boot", 1)
    taken = lock.take(str(home / "runs" / ".lock"), holder)
    yield holder
    taken.release()


def test_a_daemon_that_holds_the_runs_and_is_silent(held: lock.Holder) -> None:
    assert f"process {held.pid}" in only(neighbours.daemon).text


def test_a_daemon_that_answers(home: Path, held: lock.Holder) -> None:
    operations = FakeOperations()
    with serving(home / "onward.sock", operations):
        assert faults(neighbours.daemon) == []
        operations.pid = 1
        assert "does not hold" in only(neighbours.daemon).text


def test_a_daemon_of_another_version_with_older_settings(home: Path, held: lock.Holder) -> None:
    config = {"ok": False, "problems": ["onward.toml:3: wrong"], "restart_needed": ["daemon.runs_dir"]}
    found = list(neighbours._as_installed({"version": "0.0.9", "pid": 7, "config": config}))
    assert [finding.level for finding in found] == ["fail", "fail", "warn"]
    assert f"version 0.0.9, this command {onward.__version__}" in found[0].text


@pytest.fixture
def server() -> Iterator[HTTPServer]:
    """Answers with the status that the last part of the path before /models names, if the key is right."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            keys = (self.headers.get("authorization"), self.headers.get("x-api-key"))
            status = int(self.path.split("/")[1]) if "Bearer good" in keys or "good" in keys else 401
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            return

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
@pytest.mark.parametrize(
    ("key", "status", "level", "text"),
    [
        ("good", 200, "ok", "answers at http://127.0.0.1"),
        ("bad", 200, "fail", "refuses the key (status 401)"),
        ("good", 404, "warn", "with status 404"),
        ("", 200, "fail", "has no key"),
    ],
)
def test_a_provider_is_asked(
    kind: str,
    key: str,
    status: int,
    level: str,
    text: str,
    home: Path,
    server: HTTPServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = home / "key"
    if key:
        file.write_text(key)
        file.chmod(0o600)
    (home / "config" / "onward.toml").write_text(
        f'[providers.mine]\nkind = "{kind}"\nbase_url = "http://127.0.0.1:{server.server_port}/{status}"\n'
        f'api_key_file = "{file}"\n'
    )
    found = [finding for finding in neighbours.providers(installed()) if "'mine'" in finding.text]
    assert [(finding.level, text in finding.text) for finding in found] == [(level, True)]
    assert not key or f" {key} " not in found[0].text


def test_a_provider_that_nobody_serves(home: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        (home / "config" / "onward.toml").write_text(f'[providers.local]\nkind = "openai"\nbase_url = "{url}"\n')
        assert f"cannot be reached at {url}/models" in only(neighbours.providers).text


def test_no_provider_at_all_is_no_fault_but_said(home: Path) -> None:
    assert "What would do" in only(neighbours.providers, "warn").remedy


# The machine


def test_an_old_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "OLDEST_PYTHON", (99, 0))
    assert "is too old" in only(machine.python).text


def test_programs_that_are_missing_and_those_that_are_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "claude").write_text("#!/bin/sh\n")
    (home / "claude").chmod(0o755)
    monkeypatch.setenv("PATH", str(home))
    monkeypatch.setattr(os, "access", lambda path, _: path != "/bin/sh")
    assert "no sh" in only(machine.programs).text
    assert "git is not on PATH" in only(machine.programs, "warn").text
    assert any(f"claude ({home}/claude)" in finding.text for finding in machine.programs(installed())) or shutil.which(
        "claude"
    )


@pytest.mark.parametrize(("soft", "level"), [(128, "fail"), (512, "warn"), (4096, "ok")])
def test_few_open_files(soft: int, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, 1 << 16))
    assert f"at most {soft} open files" in only(machine.open_files, level).text


def test_files_that_cannot_be_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_failed_watch", lambda: errno.ENOSPC)
    assert "fs.inotify.max_user_watches" in only(machine.file_watches, "warn").remedy


def test_a_clock_that_is_behind(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.utime(home / "runs", (5e9, 5e9))
    (home / "runs" / "worker-1").mkdir()
    os.utime(home / "runs" / "worker-1", (5e9, 5e9))
    assert "before the newest change of a run" in only(machine.clock, "warn").text
    monkeypatch.setattr(time, "time", lambda: 1e9)
    assert "before the installation" in only(machine.clock).text


def test_what_cannot_be_looked_at_is_a_fault_and_the_rest_goes_on() -> None:
    from onward.cli.doctor import _found

    def broken(_: Installation) -> Iterator[Finding]:
        raise PermissionError(13, "no")
        yield

    assert [finding.level for finding in _found(broken, installed())] == ["fail"]


def test_a_hold_is_said_whether_a_daemon_runs_or_not(home: Path) -> None:
    (home / "runs" / "HOLD").write_text("restored")
    assert "HOLD is there" in faults(neighbours.daemon, "warn")[-1].text
    operations = FakeOperations()
    operations.held = {"on": True, "reasons": {"copy": "it is a copy"}, "runs": 3}
    with serving(home / "onward.sock", operations):
        assert "runs are held, none of them is entered: it is a copy" in faults(neighbours.daemon, "warn")[-1].text
