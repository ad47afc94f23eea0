"""Every failure is one clear line on stderr and the exit code of the design; never a traceback."""

import json
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from onward.cli.client import Client
from onward.cli.control import last_words
from onward.errors import Unreachable
from tests.cli.serving import Cli, Daemon
from tests.support import until


@pytest.mark.parametrize("args", [["ps"], ["show", "worker-1"], ["logs", "worker-1"], ["wait", "worker-1"]])
def test_without_a_daemon_a_client_says_how_to_start_one(args: list[str], cli: Cli) -> None:
    shown = cli(*args)
    assert (shown.returncode, shown.stdout) == (7, "")
    assert shown.stderr == f"onward: no daemon answers at {cli.socket}; `onward up` starts one\n"


def test_status_without_a_daemon_has_a_code_of_its_own(cli: Cli) -> None:
    shown = cli("status", "--json")
    assert (shown.returncode, json.loads(shown.stdout)["running"]) == (3, False)
    assert "no daemon runs" in shown.stderr


def test_a_socket_that_nobody_answers_is_no_daemon(cli: Cli) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(cli.socket))
    assert cli("ps").returncode == 7
    assert cli("status").returncode == 3


def test_down_without_a_daemon_is_done(cli: Cli) -> None:
    shown = cli("down")
    assert (shown.returncode, shown.stderr) == (0, "no daemon runs\n")


def test_a_change_that_is_not_answered_may_still_be_done(cli: Cli) -> None:
    """The disk of the daemon is full, say, and what it was told waits: it must not sound as if nothing would come."""
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(cli.socket))
        silent.listen()
        client = Client(cli.socket, timeout_s=0.1, kept_s=0.0)
        with pytest.raises(Unreachable, match="may still be done"):
            client.post("/v1/runs/worker-1/messages", {"text": "hi"})
        with pytest.raises(Unreachable, match=r"does not answer within 0 s$"):
            client.get("/v1/runs")


def test_a_daemon_that_could_not_even_write_its_log(tmp_path: Path) -> None:
    """As on a full disk: what is said does not end in nothing."""
    log = tmp_path / "daemon.log"
    log.touch()
    said = last_words(log, 1)
    assert said.startswith("the daemon ended with exit code 1 before it was ready")
    assert "`onward doctor`" in said


@pytest.mark.parametrize(
    "args",
    [["nonsense"], ["show"], ["logs", "x", "-n", "many"], ["logs", "x", "-n", "9" * 30], ["ps", "--what"], ["wait"]],
)
def test_wrong_usage_is_2(args: list[str], cli: Cli) -> None:
    shown = cli(*args)
    assert (shown.returncode, shown.stdout) == (2, "")
    assert "Traceback" not in shown.stderr


def test_what_the_daemon_refuses_is_said_in_its_words(daemon: Daemon, cli: Cli) -> None:
    shown = cli("run", "-a", "nobody", "task")
    assert (shown.returncode, shown.stderr) == (2, "onward: there is no agent 'nobody'\n")
    cli("run", "-d", "--idempotency-key", "k", "task")
    assert cli("run", "-d", "--idempotency-key", "k", "another task").returncode == 1


def test_what_is_no_daemon_is_said_to_be_none(cli: Cli) -> None:
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.bind(str(cli.socket))
        stranger.listen()

        def answer() -> None:
            connection = stranger.accept()[0]
            connection.recv(65536)
            connection.sendall(b"HTTP/1.0 404 Not Found\r\n\r\n<html>")
            connection.close()

        thread = threading.Thread(target=answer)
        thread.start()
        shown = cli("ps")
        thread.join()
    assert shown.returncode == 7
    assert "no Onward daemon" in shown.stderr


@contextmanager
def cutting_off(path: Path, times: int) -> Iterator[list[str]]:
    """A daemon that is killed so many times after it was asked, and answers then; yields what it was asked."""
    asked: list[str] = []

    def serve(listener: socket.socket) -> None:
        while len(asked) <= times:
            connection, _ = listener.accept()
            with connection:
                if not (request := connection.recv(1 << 16)):
                    continue  # somebody looked whether it is there
                asked.append(request.split(b" ", 1)[0].decode())
                if len(asked) > times:
                    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        yield asked


def test_what_may_be_asked_again_is_when_the_daemon_is_killed_in_between_twice(cli: Cli) -> None:
    with cutting_off(cli.socket, 2) as asked:
        assert Client(cli.socket).get("/v1/daemon") == {}
    assert asked == ["GET"] * 3


def test_what_may_have_been_done_is_not_asked_again(cli: Cli) -> None:
    with cutting_off(cli.socket, 2) as asked, pytest.raises(Unreachable, match="went away before it had answered"):
        Client(cli.socket).post("/v1/runs/worker-1/pause", {})
    assert asked == ["POST"]


def test_a_bad_configuration_is_78(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "onward.toml").write_text("[daemon]\nmax_active_run = 1\n")
    for args in (["up"], ["daemon"], ["run", "task"]):
        shown = cli(*args)
        assert shown.returncode == 78
        assert "max_active_runs" in shown.stderr
        assert "Traceback" not in shown.stderr


@pytest.mark.parametrize("args", [["--help"], ["run", "--help"], ["inspect", "-h"]])
def test_help_needs_no_daemon(args: list[str], cli: Cli) -> None:
    shown = cli(*args)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "Usage: " in shown.stdout


CLOSED = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"]


def test_closed_streams_are_no_error(cli: Cli) -> None:
    closed = subprocess.run([*CLOSED, *cli.argv("ps")], env=cli.environment(), cwd=cli.home, timeout=60)
    assert closed.returncode == 7


def test_a_daemon_with_closed_streams_gives_their_numbers_to_no_file_of_its_own(cli: Cli) -> None:
    with subprocess.Popen([*CLOSED, *cli.argv("daemon")], env=cli.environment(), cwd=cli.home) as daemon:
        until(lambda: cli("status").returncode == 0)
        assert {os.readlink(f"/proc/{daemon.pid}/fd/{number}") for number in range(3)} == {os.devnull}
        assert cli("down").returncode == 0
        assert daemon.wait(60) == 0
