"""`onward demo`: a real daemon, real commands, `kill -9` in the middle; then what the journal says about each call."""

import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from onward.cli import control, runs
from onward.cli.client import Client
from onward.cli.demo_story import LINES, RAN, SCRIPT, Story
from onward.cli.follow import Follower
from onward.cli.terminal import block, out, paint
from onward.cli.timeline import Timeline
from onward.errors import OnwardError
from onward.ports.process import Trace
from onward.processes.evidence import probe
from onward.store.lock import holder_of

LIMIT_S = 120.0
_PAUSE_S = 0.02
_BASE_LENGTH = 70

Json = dict[str, Any]


class Failed(OnwardError):
    """The demo did not show what it promises."""


def demo() -> int:
    """Play both scenes and tell what happened; 0 only if everything was as promised."""
    with _own_instance() as home:
        wrong = _Show(home).play()
        if left := _processes_of(home):
            wrong.append(f"processes were left behind: {left}")
    if home.exists():
        wrong.append(f"{home} was left behind")
    for each in wrong:
        out(paint(f"NOT AS PROMISED: {each}", "bad"))
    if not wrong:
        out(paint("\nNothing ran twice, nothing was lost, and nothing is left behind.", "good"))
    return 1 if wrong else 0


@contextmanager
def _own_instance() -> Iterator[Path]:
    """An ONWARD_HOME for these two minutes; whatever happens, its processes and files are gone afterwards."""
    # The path of a socket is short; that of a temporary directory need not be.
    base = tempfile.gettempdir() if len(tempfile.gettempdir()) < _BASE_LENGTH else "/tmp"  # noqa: S108  # mkdtemp
    home = Path(tempfile.mkdtemp(prefix="onward-demo-", dir=base))
    before = dict(os.environ)
    for name in [name for name in os.environ if name.startswith("ONWARD_")]:
        del os.environ[name]
    os.environ["ONWARD_HOME"] = str(home)
    try:
        yield home
    finally:
        _clear_away(home)
        os.environ.clear()
        os.environ.update(before)


def _clear_away(home: Path) -> None:
    end = time.monotonic() + 10.0
    while (left := _processes_of(home)) and time.monotonic() < end:
        for pid in left:
            _kill(pid)
        time.sleep(_PAUSE_S)
    shutil.rmtree(home, ignore_errors=True)


class _Show:
    """The play: follows one run, and strikes when its calls are in flight."""

    def __init__(self, home: Path) -> None:
        self.home, self.workspace = home, home / "workspace"
        self.effects = self.workspace / "effects.txt"
        self.run_id = ""

    def play(self) -> list[str]:
        """Play it; return what was not as promised."""
        self.workspace.mkdir()
        script = self.home / "script.json"
        script.write_text(json.dumps(SCRIPT))
        out(paint(f"A daemon of its own, in {self.home}; a scripted model, real commands.\n", "strong"))
        client, _ = control.ensure_daemon()
        task = f"Write {', '.join(LINES)} into effects.txt, one line each, each exactly once."
        started = runs.start(
            client,
            task,
            agent="rehearsal",
            workspace=str(self.workspace),
            model=f"scripted/{script}",
            on_restart=None,
            key=None,
        )
        self.run_id = str(started["run_id"])
        story = self._follow(client)
        self._tell(story)
        wrong = story.wrong(client.get(f"/v1/runs/{self.run_id}")["status"], self.effects.read_text())
        control.down(leave_running=False)
        return wrong

    def _follow(self, client: Client) -> Story:
        strikes: dict[str, Callable[[], None]] = {"t1c2": self._kill_the_daemon, "t2c2": self._kill_all_of_it}
        story, timeline = Story(), Timeline()
        follower = Follower(client, self.run_id, deadline=time.monotonic() + LIMIT_S)
        for record in follower.until_stopped():
            story.add(record)
            for line in timeline.render(record):
                out(line)
            if record["type"] == "ToolCallStarted" and record["call_id"] in strikes:
                strikes.pop(record["call_id"])()
        return story

    def _kill_the_daemon(self) -> None:
        _until((self.workspace / "began-two").exists, "the second command to begin")
        self._announce("kill -9 of the daemon, while the second command is in flight. The command goes on without it.")
        self._kill_daemon()
        self._announce("The daemon is started again and finds the run.")
        control.ensure_daemon()

    def _kill_all_of_it(self) -> None:
        _until((self.workspace / "began-four").exists, "the second command to begin")
        self._announce("kill -9 of the daemon again, and of the running command too, as when memory runs out.")
        self._kill_daemon()
        call_dir = self.home / "runs" / self.run_id / "calls" / "t2c2"
        launcher = probe(call_dir).pid
        if launcher is None:
            raise Failed("the second command was not running any more")
        _kill(launcher)
        _until(lambda: probe(call_dir).trace is not Trace.ALIVE, "the command to be dead")
        self._announce("The daemon is started again.")
        control.ensure_daemon()

    def _kill_daemon(self) -> None:
        client = Client()
        pid = int(client.get("/v1/daemon")["pid"])
        _kill(pid)
        _until(lambda: not client.is_up(), "the daemon to be dead")

    def _tell(self, story: Story) -> None:
        out(paint("\nWhat happened to each call, from the run's journal:\n", "strong"))
        for call_id, command, fate in story.fates():
            out(f"  {call_id}  {command:<52.52}  {paint(fate, 'good' if fate == RAN else 'warn')}")
        out(paint("\neffects.txt:\n", "strong"))
        out(f"  {block(self.effects.read_text(), '  ')}")

    def _announce(self, text: str) -> None:
        out(paint(f"\n>>> {text}\n", "bad"))


def _until(condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + LIMIT_S / 4
    while not condition():
        if time.monotonic() > end:
            raise Failed(f"waited too long for {what}")
        time.sleep(_PAUSE_S)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    try:
        os.waitpid(pid, os.WNOHANG)  # a daemon that this process started
    except ChildProcessError:
        return


def _processes_of(home: Path) -> list[int]:
    """The living processes of this instance: found by what they were started with, the daemon also by its lock."""
    mark = os.fsencode(home)
    holder = holder_of(str(home / "runs/.lock"))
    found = [] if holder is None else [holder.pid]
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit() or int(entry.name) in (os.getpid(), *found):
            continue
        try:
            told = Path(entry.path, "environ").read_bytes() + Path(entry.path, "cmdline").read_bytes()
            directory = os.fsencode(os.readlink(f"{entry.path}/cwd"))
        except OSError:
            continue  # gone, or another user's
        if mark in told or directory.startswith(mark):
            found.append(int(entry.name))
    return found
