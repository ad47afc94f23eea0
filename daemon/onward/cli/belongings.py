"""Looks of `onward doctor` at files: what Onward was shipped with, the configuration, the runs directory."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from onward.cli.examination import Finding, Installation, Level, existing
from onward.cli.log_file import check_log, log_file
from onward.config.agents import load_agents
from onward.config.places import SERVICE, shipped
from onward.errors import BadConfiguration, NotFound, OnwardError
from onward.store import disk
from onward.store.directory import HOLD, INSTANCE, LOCK
from onward.store.facts import FACTS
from onward.store.mounts import network_file_system

SHIPPED = ("onward.toml", "models.toml", "rehearsal.json", "agents/worker.toml", "agents/rehearsal.toml")
LITTLE_SPACE, NO_SPACE = 1 << 30, 64 << 20
FEW_INODES, NO_INODES = 10_000, 500
_BESIDE_RUNS = (
    (LOCK, os.O_RDWR, "no daemon can start until then"),
    (INSTANCE, os.O_RDONLY, "no daemon can start until then"),
    (FACTS, os.O_RDWR | os.O_APPEND, "until then it is not known which runs killed a daemon, or who was told of what"),
    (HOLD, os.O_RDONLY, "all runs are held until then"),
)
"""Each file, how it is opened, and what it means when it cannot be."""


def package(_: Installation) -> Iterator[Finding]:
    """The files that belong to the installation."""
    remedy = "install Onward again: pip install --force-reinstall onward"
    try:
        folder = shipped("config")
    except BadConfiguration as error:
        yield Finding("fail", str(error), remedy)
        return
    if missing := [name for name in SHIPPED if not (folder / name).is_file()]:
        yield Finding("fail", f"{folder} lacks {', '.join(missing)}", remedy)
    else:
        yield Finding("ok", f"the shipped files are whole ({folder})")


def settings(installation: Installation) -> Iterator[Finding]:
    """onward.toml and the environment."""
    for complaint in installation.complaints:
        yield Finding("fail", complaint, "correct it; a running daemon keeps what was good before")
    if not installation.complaints:
        files = [str(file) for file in installation.places.settings_files if file.exists()]
        yield Finding("ok", f"settings: {', '.join(files) or 'none written, the defaults are used'}")


def agents(installation: Installation) -> Iterator[Finding]:
    """The agent definitions."""
    try:
        found, problems = load_agents(installation.places.agent_dirs)
    except BadConfiguration:
        return  # the package is not whole; that is said already
    for problem in problems:
        where = f"{problem.file}:{problem.line}" if problem.line else str(problem.file)
        yield Finding("fail", f"{where}: {problem.what}", problem.remedy)
    default = installation.settings.daemon.default_agent if installation.settings else "worker"
    if default not in found:
        remedy = "set [daemon] default_agent to one of these, or write it"
        yield Finding("fail", f"the default agent {default!r} is not among {', '.join(sorted(found))}", remedy)
    elif not problems:
        yield Finding("ok", f"agents: {', '.join(sorted(found))}")


def runs_directory(installation: Installation) -> Iterator[Finding]:
    """Where journals are written: ours, private, local, with space."""
    path = installation.places.runs_dir
    if not path.exists():
        yield from _to_be_made(path)
        return
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode):
        yield Finding("fail", f"{path} is no directory", "move it away, or set [daemon] runs_dir")
        return
    ours = installation.places != SERVICE  # the service has a user of its own
    faults = [*([*_owner(path, found), *_files(path)] if ours else []), *_kind(installation), *_room(path)]
    yield from faults or [Finding("ok", f"the runs are in {path}")]


def _to_be_made(path: Path) -> Iterator[Finding]:
    above = existing(path)
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        yield Finding(
            "fail", f"{path} is not there and cannot be made: {above} is not writable", "make it, or change runs_dir"
        )
    else:
        yield from list(_room(above)) or [Finding("ok", f"{path} is not there yet; the first daemon makes it")]


def _owner(path: Path, found: os.stat_result) -> Iterator[Finding]:
    if found.st_uid != os.geteuid():
        remedy = f"chown -R {os.geteuid()} {path}, or run Onward as user {found.st_uid}"
        yield Finding("fail", f"{path} belongs to user {found.st_uid}, not to {os.geteuid()}", remedy)
    elif found.st_mode & 0o077:
        mode = stat.S_IMODE(found.st_mode)
        yield Finding(
            "fail", f"{path} is open to others (mode {mode:04o}); runs hold all that was said", f"chmod 700 {path}"
        )
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        yield Finding("fail", f"{path} cannot be read and written", f"chmod 700 {path}; is its file system read-only?")


def _kind(installation: Installation) -> Iterator[Finding]:
    kind = network_file_system(installation.places.runs_dir)
    if kind is None:
        return
    text = f"{installation.places.runs_dir} lies on {kind}, where locks and flushes may not hold"
    allowed = installation.settings is not None and installation.settings.daemon.allow_network_fs
    yield Finding("warn" if allowed else "fail", text, "set [daemon] runs_dir to a directory on a local disk")


def _files(path: Path) -> Iterator[Finding]:
    """The files that a daemon opens beside the runs, each opened as it does."""
    try:
        runs_fd = disk.open_dir(str(path))
    except OnwardError:
        return  # it cannot be read; that is said already
    try:
        for name, flags, without in _BESIDE_RUNS:
            try:
                os.close(disk.open_regular(name, flags, dir_fd=runs_fd))
            except NotFound:
                continue
            except OnwardError as error:
                yield Finding("fail", f"in {path}, {error}", f"move it away, while no daemon runs; {without}")
    finally:
        os.close(runs_fd)


def daemon_log(installation: Installation) -> Iterator[Finding]:
    """What `onward up` lets the daemon write to."""
    if installation.places == SERVICE:
        return  # it writes to the system's journal
    log = log_file()
    try:
        check_log(log)
    except OnwardError as error:
        yield Finding("fail", str(error), "move it away: until then `onward up` starts no daemon")
    else:
        yield Finding("ok", f"a daemon that onward up starts writes to {log}")


def _room(path: Path) -> Iterator[Finding]:
    room = os.statvfs(path)
    free = room.f_bavail * room.f_frsize
    if free < LITTLE_SPACE:
        level: Level = "fail" if free < NO_SPACE else "warn"
        yield Finding(level, f"{path} has {free >> 20} MiB left", "make room: runs are parked when the disk is full")
    if room.f_files and room.f_favail < FEW_INODES:
        level = "fail" if room.f_favail < NO_INODES else "warn"
        yield Finding(level, f"{path} has {room.f_favail} inodes left", "remove files: each run needs a few dozen")
