"""What the service manager hands over and is told: by a real datagram socket in its place."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from onward.supervisor.service_manager import ServiceManager


class Told:
    """The end at which the service manager listens."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.socket.settimeout(30)

    def next(self) -> dict[str, str]:
        message = self.socket.recv(65536).decode()
        return dict(line.split("=", 1) for line in message.split("\n"))


@pytest.fixture
def manager(told: Told) -> Iterator[ServiceManager]:
    with closing(ServiceManager(told.path, watchdog_s=3.0)) as made:
        yield made


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Told]:
    made = Told(tmp_path / "notify")
    yield made
    made.socket.close()


def test_without_a_service_manager_nothing_is_said_to_anybody() -> None:
    manager = ServiceManager.from_environment({})
    manager.ready("x")
    manager.alive("x")
    assert (manager.address, manager.watchdog_s, manager.listener) == (None, None, None)


def test_what_was_handed_over_is_taken_out_of_the_environment(told: Told) -> None:
    """So that no child can speak for the daemon, or take its socket."""
    environ = {
        "NOTIFY_SOCKET": told.path,
        "WATCHDOG_USEC": "30000000",
        "WATCHDOG_PID": str(os.getpid()),
        "LISTEN_PID": "1",
        "LISTEN_FDS": "1",
        "LISTEN_FDNAMES": "onward.socket",
        "HOME": "/",
    }
    with closing(ServiceManager.from_environment(environ)) as manager:
        found = manager.watchdog_s, manager.listener
    assert environ == {"HOME": "/"}
    assert found == (30.0, None)


def test_a_watchdog_that_is_meant_for_another_process_is_not_fed(told: Told) -> None:
    environ = {"NOTIFY_SOCKET": told.path, "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}
    with closing(ServiceManager.from_environment(environ)) as manager:
        manager.alive("working")
    assert told.next() == {"STATUS": "working"}


def test_each_message_has_the_fields_of_sd_notify(told: Told, manager: ServiceManager) -> None:
    manager.ready("two\nlines")
    assert told.next() == {"READY": "1", "STATUS": "two lines"}
    before = time.monotonic_ns() // 1000
    manager.reloading()
    reloading = told.next()
    assert before <= int(reloading.pop("MONOTONIC_USEC")) <= time.monotonic_ns() // 1000
    assert reloading == {"RELOADING": "1"}
    manager.alive("works")
    assert told.next() == {"STATUS": "works", "WATCHDOG": "1"}
    manager.stopping("ends")
    assert told.next() == {"STOPPING": "1", "STATUS": "ends"}


def test_what_a_full_queue_did_not_take_is_said_with_the_next_message(told: Told, manager: ServiceManager) -> None:
    """READY that is lost would end a daemon which is ready."""
    count = 0
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.setblocking(False)
        other.connect(told.path)
        try:
            while True:
                other.send(b"X=1")
                count += 1
        except BlockingIOError:
            pass
        manager.ready("up")
        for _ in range(count):
            assert told.next() == {"X": "1"}
    manager.alive("works")
    assert told.next() == {"READY": "1", "STATUS": "works", "WATCHDOG": "1"}


LIFE = """
import os, sys, time
from onward.config.places import find_places
from onward.config.settings import load_settings
from onward.supervisor.main import run_daemon
sys.exit(run_daemon(load_settings(find_places())))
"""


def test_the_life_of_a_daemon_is_told(told: Told, tmp_path: Path) -> None:
    """Ready when it serves, alive as long as its loop goes round, reloading, stopping."""
    home = tmp_path / "home"
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    env = {**kept, "ONWARD_HOME": str(home), "NOTIFY_SOCKET": told.path, "WATCHDOG_USEC": "300000"}
    with (tmp_path / "log").open("wb") as log:
        daemon = subprocess.Popen([sys.executable, "-c", LIFE], env=env, stderr=log)
    try:
        assert "READY" in until_told(told, "READY")
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(home / "onward.sock"))
        until_told(told, "WATCHDOG")
        until_told(told, "WATCHDOG")
        daemon.send_signal(1)
        until_told(told, "RELOADING")
        until_told(told, "READY")
        daemon.terminate()
        until_told(told, "STOPPING")
        assert daemon.wait(30) == 0
    finally:
        daemon.kill()
        daemon.wait()


def until_told(told: Told, name: str) -> dict[str, str]:
    while name not in (message := told.next()):
        pass
    return message
