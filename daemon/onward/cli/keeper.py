"""The small parent of a daemon that no service manager looks after: starts it again when it dies, until told to end.

Run as `python -m onward.cli.keeper SOCKET`. As process 1 of a container it also reaps whoever is left to it. It knows
nothing of runs: a keeper that is killed leaves a daemon that works, and is not started again when that dies.
"""

import json
import os
import signal
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from onward.cli.keeping import ANOTHER, STEADY_S, Kept, Verdict, judge, keep_alone, kept_file, start_ticks, write_kept

_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_WAITED_FOR = (*_PASSED_ON, signal.SIGCHLD)
CANNOT_START = 71
"""EX_OSERR: stands for the exit code of a daemon that did not come to be."""


class Keeper:
    """Keeps one daemon. `run` returns its last exit code."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._kept = Kept(pid=os.getpid(), start_ticks=start_ticks(os.getpid()) or 0)
        self._asked = False
        self._failures = 0
        self._daemon = 0
        self._code: int | None = None

    def run(self) -> int:
        # Blocked, so that none is lost: they are taken one by one. The daemon gets a clean mask.
        signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED_FOR)
        if not keep_alone(self._socket):
            say("info", "another keeper looks after the daemon already", socket=str(self._socket))
            return ANOTHER
        self._tell()
        hold = False
        while True:
            code, lasted_s = self._one_life(hold)
            self._failures = 1 if lasted_s >= STEADY_S else self._failures + 1
            verdict = judge(code, failures=self._failures, asked=self._asked)
            hold = verdict.act == "hold"
            if verdict.act in ("again", "hold") and self._pause(verdict):
                continue
            if verdict.act == "give up":
                say("error", "the daemon is not started again", reason=verdict.reason)
                self._kept = replace(self._kept, given_up=verdict.reason)
                self._tell()
            else:
                kept_file(self._socket).unlink(missing_ok=True)
            return code if code >= 0 else 128 - code

    def _one_life(self, hold: bool) -> tuple[int, float]:
        began = time.monotonic()
        self._code = None
        argv = [sys.executable, "-m", "onward", "daemon", *(["--hold"] if hold else [])]
        # In a session of its own: Ctrl-C reaches it once, through us; a second time would end it at once.
        spawn = partial(os.posix_spawn, setsid=True, setsigmask=[], setsigdef=_WAITED_FOR)
        try:
            self._daemon = spawn(sys.executable, argv, os.environ)
        except OSError as error:  # no process is left, or this installation is being replaced: that passes
            say("error", "the daemon cannot be started", error=str(error))
            return CANNOT_START, 0.0
        while self._code is None:
            self._take(signal.sigwaitinfo(_WAITED_FOR).si_signo)
        return self._code, time.monotonic() - began

    def _pause(self, verdict: Verdict) -> bool:
        """Wait before the next start; False if it is not to come any more."""
        say("warning", "the daemon is started again", reason=verdict.reason, in_s=verdict.delay_s)
        self._kept = replace(self._kept, restarts=self._kept.restarts + 1, last_end=verdict.reason)
        self._tell()
        end = time.monotonic() + verdict.delay_s
        while not self._asked and (left := end - time.monotonic()) > 0:
            if (taken := signal.sigtimedwait(_WAITED_FOR, left)) is not None:
                self._take(taken.si_signo)
        return not self._asked

    def _take(self, number: int) -> None:
        if number == signal.SIGCHLD:
            self._reap()
            return
        self._asked = self._asked or number != signal.SIGHUP
        if self._daemon:
            os.kill(self._daemon, number)  # not reaped yet, so nobody else has its pid

    def _reap(self) -> None:
        """Collect whoever has ended: one SIGCHLD may stand for many, and some were left to process 1."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._daemon:
                self._daemon, self._code = 0, os.waitstatus_to_exitcode(status)

    def _tell(self) -> None:
        try:
            write_kept(self._socket, self._kept)
        except OSError as error:
            say("warning", "the keeper cannot tell of itself", error=str(error))


def say(level: str, event: str, **fields: object) -> None:
    """Write a line as the daemon writes its log."""
    now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    print(json.dumps({**fields, "event": event, "level": level, "timestamp": now}), file=sys.stderr, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(Keeper(Path(sys.argv[1])).run())
