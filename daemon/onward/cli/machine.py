"""Looks of `onward doctor` at the machine: Python, programs, limits, the clock."""

import ctypes
import errno
import os
import resource
import shutil
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import onward
from onward.cli.examination import Finding, Installation
from onward.supervisor.usable import AGENT_CLIS

OLDEST_PYTHON = (3, 11)
FEW_FILES, TOO_FEW_FILES = 1024, 256
CLOCK_SLACK_S = 300.0
_IN_CREATE = 0x100


def python(_: Installation) -> Iterator[Finding]:
    """The interpreter."""
    version, where = ".".join(map(str, sys.version_info[:3])), sys.executable
    if sys.version_info < OLDEST_PYTHON:
        yield Finding("fail", f"Python {version} ({where}) is too old", "install Onward with Python 3.11 or newer")
    else:
        yield Finding("ok", f"Python {version} ({where}), Onward {onward.__version__}")


def programs(_: Installation) -> Iterator[Finding]:
    """What runs use: a shell, git; agent CLIs are only named."""
    if shutil.which("sh", path=os.environ.get("PATH", os.defpath)) is None and not os.access("/bin/sh", os.X_OK):
        yield Finding("fail", "there is no sh: the shell tool cannot work", "install a POSIX shell, or mend PATH")
    if (git := shutil.which("git")) is None:
        yield Finding("warn", "git is not on PATH", "install git: agents that work on code need it")
    else:
        yield Finding("ok", f"sh, and git at {git}")
    found = [f"{name} ({path})" for name in AGENT_CLIS if (path := shutil.which(name))]
    yield Finding("ok", f"agent CLIs on PATH: {', '.join(found) or 'none'}")


def open_files(_: Installation) -> Iterator[Finding]:
    """`ulimit -n`: every run, command and client needs some."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = f"at most {soft} open files (ulimit -n; up to {hard} can be allowed)"
    remedy = "ulimit -n 4096 before the daemon starts, or LimitNOFILE= in its unit"
    if soft < TOO_FEW_FILES:
        yield Finding("fail", text, remedy)
    else:
        yield Finding("warn", text, remedy) if soft < FEW_FILES else Finding("ok", text)


def file_watches(_: Installation) -> Iterator[Finding]:
    """inotify: how the daemon hears that its configuration was saved."""
    failed = _failed_watch()
    if failed is None:
        yield Finding("ok", "files can be watched (inotify)")
        return
    knob = {errno.EMFILE: "max_user_instances", errno.ENOSPC: "max_user_watches"}.get(failed)
    remedy = f"sysctl fs.inotify.{knob}=1024 or more" if knob else "see inotify(7)"
    yield Finding(
        "warn", f"files cannot be watched ({os.strerror(failed)}): the daemon polls its configuration", remedy
    )


def clock(installation: Installation) -> Iterator[Finding]:
    """The clock: times in journals and waits depend on it."""
    now = time.time()
    shown = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    remedy = "set the clock (timedatectl set-ntp true): waits and times in journals depend on it"
    newest = _newest_change(installation)
    if now + CLOCK_SLACK_S < os.stat(onward.__file__).st_mtime:
        yield Finding("fail", f"the clock ({shown}) is before the installation of Onward", remedy)
    elif newest > now + CLOCK_SLACK_S:
        yield Finding("warn", f"the clock ({shown}) is {newest - now:.0f} s before the newest change of a run", remedy)
    else:
        yield Finding("ok", f"it is {shown}")


def _failed_watch() -> int | None:
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.inotify_init1(os.O_CLOEXEC)
    if fd < 0:
        return ctypes.get_errno()
    try:
        return ctypes.get_errno() if libc.inotify_add_watch(fd, b"/", _IN_CREATE) < 0 else None
    finally:
        os.close(fd)


def _newest_change(installation: Installation) -> float:
    try:
        with os.scandir(installation.places.runs_dir) as found:
            return max((entry.stat(follow_symlinks=False).st_mtime for entry in found), default=0.0)
    except OSError:
        return 0.0
