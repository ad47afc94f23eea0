"""Starts daemons for the crash suite, each in a forked child: a sweep need not pay for a thousand imports.

Told on stdin, one JSON object a line: `{"home", "log", "env", "notes", "boot_id"}` starts a daemon and is answered with
its pid, `{"wait": pid}` with the exit code of one that has ended. At the end of stdin whatever still lives is killed.

The daemon is the real one, but for two things around it: every request is checked as a strict provider would, and
(where `notes` says so) what is flushed is noted, by the daemon and by its launchers.
"""

import hashlib
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from onward.config.places import Places, find_places
from onward.config.settings import load_settings
from onward.core.conversation import ProviderMessage
from onward.native.models.scripted import ScriptedModel
from onward.ports.clock import Clock
from onward.ports.model import ModelRequest, ModelTurn
from onward.processes import LauncherSpawner
from onward.processes.launcher_kernel import PR_SET_PDEATHSIG, prctl
from onward.supervisor.assembly import World
from onward.supervisor.main import run_daemon
from onward.supervisor.models import ConfiguredModels
from onward.testing.strict import check_request
from tests.crash import recorder

REQUESTS = "requests.jsonl"


class StrictModel(ScriptedModel):
    """Notes each request, and what a strict provider would refuse in it."""

    def __init__(self, path: Path, clock: Clock, notes: Path) -> None:
        super().__init__(path, clock)
        self.notes = notes

    async def infer(self, request: ModelRequest, on_delta: Callable[[str], None] | None = None) -> ModelTurn:
        messages = list(request.messages)
        note = {
            "model": self.name,
            "turns": request.turns,
            "problems": check_request(messages),
            "count": len(messages),
            "digests": newest_digests(messages),
        }
        with self.notes.open("a") as file:
            file.write(json.dumps(note) + "\n")
        return await super().infer(request, on_delta)


def newest_digests(messages: list[ProviderMessage]) -> dict[int, str]:
    """Return digests of the beginnings of a request, by their length: of the longest ones, which the next extends."""
    digest, found = hashlib.sha256(), {}
    for count, message in enumerate(messages, 1):
        digest.update(json.dumps(message).encode())
        found[count] = digest.hexdigest()
    return {count: found[count] for count in list(found)[-8:]}


class StrictModels(ConfiguredModels):
    def __init__(self, places: Places, clock: Clock) -> None:
        super().__init__(places, clock)
        self.places, self.clock = places, clock

    async def load(self, name: str) -> StrictModel:
        path = self.places.find_script(name.partition("/")[2])
        return StrictModel(path, self.clock, self.places.runs_dir.parent / REQUESTS)


def live(asked: dict[str, Any]) -> NoReturn:
    """Be a daemon until the end."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    null, log = os.open(os.devnull, os.O_RDWR), os.open(asked["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for fd, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(fd, target)
    os.environ.clear()
    os.environ.update(asked["env"])
    world: dict[str, Any] = {"models": StrictModels}
    if asked.get("boot_id"):
        world["boot_id"] = asked["boot_id"]
    if notes := asked.get("notes"):
        world["spawner"] = LauncherSpawner(launcher_python=recorder.launcher_python(Path(notes)))
        recorder.install(notes)
    code = 70
    try:
        code = run_daemon(load_settings(find_places()), World(**world))
    except BaseException:  # noqa: BLE001  # whatever it was belongs into the log
        traceback.print_exc()
    os._exit(code)


def main() -> None:
    answer = partial(print, flush=True)
    living: set[int] = set()
    for line in sys.stdin:
        asked = json.loads(line)
        if pid := asked.get("wait"):
            _, status = os.waitpid(pid, 0)
            living.discard(pid)
            answer(os.waitstatus_to_exitcode(status))
        elif pid := os.fork():
            living.add(pid)
            answer(pid)
        else:
            live(asked)
    for pid in living:
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
