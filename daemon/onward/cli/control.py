"""The verbs about the daemon itself: up, down, status, reload."""

import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

from onward.cli import kept
from onward.cli.client import Client, NoDaemon, TimedOut
from onward.cli.holding import show_hold, what_to_do
from onward.cli.keeping import ANOTHER, keeper_at_work, read_kept
from onward.cli.log_file import log_file, open_log
from onward.cli.terminal import line, out, out_json, paint, say
from onward.errors import BadConfiguration, OnwardError, Unreachable

START_S = 60.0
STOP_S = 90.0
LOG_LINES = 15
_PAUSE_S = 0.03
_NO_DAEMON = 3

Json = dict[str, Any]


class DidNotStart(OnwardError):
    """The daemon ended before it was ready; `exit_code` is its own."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def up() -> int:
    """Start a daemon if none runs."""
    client, began = ensure_daemon()
    known = client.get("/v1/daemon")
    say(f"the daemon (pid {known['pid']}) {'runs' if began else 'was running already'}")
    return 0


def stay() -> NoReturn:
    """Become the keeper of a daemon, in the foreground."""
    socket, _ = _places()
    os.environ.update(_absolute("ONWARD_HOME") | _absolute("ONWARD_SOCKET"))
    os.execv(sys.executable, _keeper(socket))  # noqa: S606  # it is what is asked for


def ensure_daemon() -> tuple[Client, bool]:
    """Return a client of a daemon that is ready, and whether it was started for that.

    Raises:
        BadConfiguration: The settings are wrong.
        DidNotStart: It ended at once.
        Unreadable: Its log cannot be written.
        Unreachable: It is not ready in a minute.
    """
    client, end = Client(), time.monotonic() + START_S
    while client.is_up():
        if _is_ready(client):
            return client, False
        _pause(client, end)
    return _started(end), True


def _places() -> tuple[Path, Path]:
    """Return where the daemon's socket and its log are."""
    from onward.config.places import find_places
    from onward.config.settings import load_settings

    places = find_places()
    return load_settings(places).apply(places).socket, log_file()


def _keeper(socket: Path) -> list[str]:
    return [sys.executable, "-m", "onward.cli.keeper", str(socket)]


def _spawn(log: Path, socket: Path) -> "subprocess.Popen[bytes]":
    """Start the daemon's keeper in a session of its own, with nothing of this terminal."""
    fd = open_log(log)
    try:
        return subprocess.Popen(
            _keeper(socket),
            stdin=subprocess.DEVNULL,
            stdout=fd,
            stderr=fd,
            start_new_session=True,
            cwd="/",
            env={**os.environ, **_absolute("ONWARD_HOME"), **_absolute("ONWARD_SOCKET")},
        )
    finally:
        os.close(fd)


def _absolute(variable: str) -> dict[str, str]:
    # The daemon's directory is /, so that it keeps none from being unmounted.
    value = os.environ.get(variable)
    return {variable: os.path.abspath(os.path.expanduser(value))} if value else {}


def _started(end: float) -> Client:
    """Return a client of the daemon when it is ready; it gets a keeper where none is at work, or the one there ends."""
    socket, log = _places()
    client, child, before = Client(socket), None, keeper_at_work(socket)
    if before is not None:
        say(f"its keeper (pid {before.pid}) is starting the daemon")
    while True:
        # Asked before the daemon: one that ended right after it answered was not the one that answered.
        code = None if child is None else child.poll()
        if client.is_up() and _is_ready(client):
            return client
        if code not in (None, ANOTHER):
            raise DidNotStart(last_words(log, code), code if code > 0 else 1)
        keeper = keeper_at_work(socket)
        if keeper is not None and (before is None or keeper.pid != before.pid) and keeper.restarts > 1:
            said = f"{keeper.last_end}; it is tried again, and `onward down` ends that"
            raise DidNotStart(f"{said}\n{last_words(log, None)}", 1)
        if keeper is None and (child is None or code == ANOTHER):
            child = _spawn(log, socket)  # again where it met another's keeper, which ended with its daemon
        _pause(client, end)


def _pause(client: Client, end: float) -> None:
    if time.monotonic() > end:
        raise Unreachable(f"the daemon at {client.path} is not ready after {START_S:.0f} s; it goes on starting")
    time.sleep(_PAUSE_S)


def _is_ready(client: Client) -> bool:
    try:
        Client(client.path, kept_s=0.0).get("/readyz")
    except Unreachable:
        return False
    return True


def last_words(log: Path, code: int | None) -> str:
    """Say how a daemon ended that was not ready yet (`code` None: somehow), and what it last wrote to its log."""
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 8192))
        lines = file.read().decode("utf-8", "replace").splitlines()[-LOG_LINES:]
    how = "ended" if code is None else f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
    if not lines:
        return f"the daemon {how} before it was ready, and could say nothing in its log ({log}); ask `onward doctor`"
    return "\n".join([f"the daemon {how} before it was ready. Its log ({log}) ends with:", *lines])


def down(*, leave_running: bool) -> int:
    """Drain and stop the daemon; return when its process is gone."""
    client = Client(kept_s=0.0)
    _, keeper = kept.opened(client.path)
    try:
        pid = int(client.get("/v1/daemon")["pid"])
        process = kept.open_process(pid)
        client.post("/v1/daemon/stop", {"leave_running": leave_running})
    except NoDaemon:
        return kept.end(client.path)
    if process is None:
        say(f"the daemon (pid {pid}) was asked to stop; it is out of sight from here")
        return 0
    try:
        if not select.select([process], [], [], STOP_S)[0]:
            raise TimedOut(f"the daemon (pid {pid}) still drains after {STOP_S:.0f} s; it was not killed")
    finally:
        os.close(process)
    kept.wait_for(keeper)
    left = " and left the commands running" if leave_running else ""
    say(f"the daemon (pid {pid}) has stopped{left}")
    return 0


def status(*, as_json: bool) -> int:
    """Say what the daemon is and what its last recovery found."""
    client = Client(kept_s=0.0)
    known_kept = read_kept(client.path)
    try:
        known = client.get("/v1/daemon")
    except NoDaemon:
        if as_json:
            out_json({"running": False, "socket": str(client.path), "keeper": kept.to_json(known_kept)})
        say(f"no daemon runs (nobody answers at {client.path}){kept.why(known_kept)}")
        return _NO_DAEMON
    if as_json:
        out_json({"running": True, **known, "keeper": kept.to_json(known_kept)})
        return 0
    out(f"daemon     {line(known['version'], 40)}, pid {known['pid']}, up {known['uptime_s']:.0f} s, at {client.path}")
    runs = ", ".join(f"{count} {line(name, 20)}" for name, count in sorted(known["runs"].items()))
    out(f"runs       {runs or 'none'}")
    _show_isolation(known.get("isolation") or {})
    kept.show(known_kept)
    show_hold(known.get("hold") or {})
    _show_config(known.get("config") or {})
    _show_recovery(known.get("recovery") or {})
    return 0


def reload() -> int:
    """Let the daemon read its configuration again; 78 if something is wrong with it."""
    config = Client().post("/v1/daemon/reload", {}, repeatable=True)
    for problem in config["problems"]:
        say(str(problem))
    if not config["ok"]:
        say("settings stay as they were; an agent that is wrong cannot be used. `onward status` shows it too")
        return BadConfiguration.exit_code
    say("the configuration was read and is used")
    if config.get("restart_needed"):
        say(f"not before a restart of the daemon: {', '.join(config['restart_needed'])}")
    return 0


def _show_config(config: Json) -> None:
    waits = ", ".join(line(name, 60) for name in config.get("restart_needed") or [])
    told = (
        "ok" if config.get("ok", True) else "WRONG: settings stay as they were; an agent that is wrong cannot be used"
    )
    read = f", read at {line(config['loaded_at'], 40)}" if config.get("loaded_at") else ""
    out(f"config     {paint(told, '' if config.get('ok', True) else 'bad')}{read}")
    for problem in config.get("problems") or []:
        out(f"           {paint(line(problem, 400), 'bad')}")
    if waits:
        out(f"           {paint(f'a restart is needed for {waits}', 'warn')}")


def _show_isolation(isolation: Json) -> None:
    if not isolation:
        return
    told = {"cgroups": "a cgroup for each call", "process-groups": "process groups, no cgroups"}
    kind = told.get(isolation["kind"], line(isolation["kind"], 40))
    out(f"isolation  {kind}: {line(isolation.get('reason'), 400)}")
    if isolation.get("problem"):
        out(f"           {paint(line(isolation['problem'], 1000), 'bad')}")
        out(f"           {paint('-> ' + line(isolation.get('remedy'), 1000), 'bad')}")


def _show_recovery(report: Json) -> None:
    counts = ", ".join(f"{count} {line(name, 20)}" for name, count in sorted((report.get("counts") or {}).items()))
    left = f"; {report['waiting']} still to be looked at" if report.get("waiting") else ""
    out(f"recovery   {counts or 'nothing to recover'}{left}")
    for found in report.get("reasons") or []:
        shown = f"{line(found.get('run_id'), 64)} {line(found.get('outcome'), 20)}: {line(found.get('reason'))}"
        out(f"           {paint(shown, 'warn')}")
        if command := what_to_do(line(found.get("run_id"), 64), found.get("outcome")):
            out(f"             -> {command}")
