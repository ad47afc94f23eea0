"""What the keeper of a daemon decides and tells: pure, and as small as the keeper itself (standard library only)."""

import fcntl
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

FIRST_DELAY_S, LONGEST_DELAY_S = 0.5, 10.0
STEADY_S = 300.0
"""A daemon that lived as long has come back for good: what failed before does not count any more."""
MOST_FAILURES = 20
"""More than it takes a daemon to find by itself that it dies again and again. One that took longer over each death is
started once more, to hold its runs: then it can be asked what is wrong."""
ANOTHER = 75
"""The exit code of a keeper that found another one at work (EX_TEMPFAIL)."""

_FINAL = {
    2: "it was started wrongly",
    8: "another daemon holds the runs, or the socket is served already",
    78: "its configuration is wrong",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What follows from the end of a daemon. `delay_s` only where it is started again; `hold`: with `--hold`."""

    act: Literal["end", "again", "hold", "give up"]
    reason: str
    delay_s: float = 0.0


def judge(code: int, *, failures: int, asked: bool) -> Verdict:
    """Decide whether a daemon that has ended is started again.

    Args:
        code: Its exit code, or minus the signal number.
        failures: How many ends in a row there are with this one, none of them after `STEADY_S`.
        asked: The keeper was told to end.
    """
    how = f"it was ended by signal {-code}" if code < 0 else f"it ended with exit code {code}"
    if asked or code == 0:
        return Verdict(act="end", reason="it was told to stop")
    if code in _FINAL:
        return Verdict(act="give up", reason=f"{how}: {_FINAL[code]}")
    if failures == MOST_FAILURES:
        return Verdict(act="hold", reason=f"{how}, {failures} times in a row", delay_s=LONGEST_DELAY_S)
    if failures > MOST_FAILURES:
        return Verdict(act="give up", reason=f"{how}, {failures} times in a row without {STEADY_S:.0f} s between")
    delay_s = min(FIRST_DELAY_S * 2 ** (failures - 1), LONGEST_DELAY_S)
    return Verdict(act="again", reason=how, delay_s=delay_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What a keeper tells of itself in a file. `last_end`: why the daemon was started again the last time."""

    pid: int
    start_ticks: int
    restarts: int = 0
    last_end: str | None = None
    given_up: str | None = None

    def alive(self) -> bool:
        """Whether this very process still runs."""
        return self.given_up is None and start_ticks(self.pid) == self.start_ticks


def kept_file(socket: Path) -> Path:
    """Return where the keeper of the daemon at `socket` tells of itself."""
    return socket.with_name(f"{socket.name}.keeper")


def keep_alone(socket: Path) -> bool:
    """Take the lock of the only keeper, for the life of this process; False where another one has it.

    Raises:
        OSError: No lock can be had there.
    """
    socket.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = socket.with_name(f"{socket.name}.keeper.lock")
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return False
    return True


def read_kept(socket: Path) -> Kept | None:
    """Return what is told there, None where there is nothing whole, or nothing of ours."""
    try:
        fd = os.open(kept_file(socket), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with open(fd, "rb") as file:
        if os.fstat(fd).st_uid != os.geteuid():
            return None
        try:
            known: dict[str, Any] = json.loads(file.read(4096))
            return Kept(**known)
        except (ValueError, TypeError):
            return None


def keeper_at_work(socket: Path) -> Kept | None:
    """Return the keeper of the daemon at `socket`, if one runs."""
    found = read_kept(socket)
    return found if found is not None and found.alive() else None


def write_kept(socket: Path, kept: Kept) -> None:
    """Replace what is told.

    Raises:
        OSError: The disk or the directory did not take it.
    """
    path = kept_file(socket)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temp = path.with_name(f"{path.name}.{os.getpid()}")
    temp.unlink(missing_ok=True)
    fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(fd, "w") as file:
        json.dump({name: getattr(kept, name) for name in Kept.__slots__}, file)
    temp.replace(path)


def start_ticks(pid: int) -> int | None:
    """Return when a process began, in ticks since the boot; None where there is none, or only a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, UnicodeDecodeError):
        return None
    return None if fields[0] == "Z" else int(fields[19])
