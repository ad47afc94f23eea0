"""A private machine: a real systemd as PID 1 of new namespaces, on this kernel and an overlay of this root.

It boots in about a second, and can lose its power. Root, systemd, util-linux and overlayfs are needed.
"""

import fcntl
import os
import shutil
import struct
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.support import until

INIT = Path(__file__).with_name("init.sh")
EXT4_SHUTDOWN, WITHOUT_LOG_FLUSH = 0x8004587D, struct.pack("I", 2)
MOVED = 'n=$1; shift; for g in "${@:1:n}"; do echo 0 >"$g/cgroup.procs"; done; shift $n; exec unshare --cgroup "$@"'
DISK_BYTES = 256 << 20


def why_not() -> str | None:
    """Return why no such machine can be made here, or None."""
    if os.geteuid() != 0:
        return "booting a private systemd needs root"
    tools = ("systemctl", "unshare", "nsenter", "setpriv", "mke2fs")
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing or not Path("/lib/systemd/systemd").exists():
        return f"there is no {', '.join(missing) or 'systemd'} on this machine"
    if "overlay" not in Path("/proc/filesystems").read_text():
        return "the kernel has no overlayfs"
    return None


@dataclass
class Machine:
    """`boot` it, use it, end it by `poweroff`, `crash` or (with a disk) `cut_power`, and boot it again."""

    state: Path
    """What outlives a boot: /var/lib and /var/log."""
    units: Path
    """What stands in /etc/systemd/system."""
    opt: Path
    """What stands in /opt, and in it `onward.sysusers`."""
    disk: bool = False
    """Keep the state on a file system of its own, which loses at a power cut what was not flushed."""
    enable: tuple[str, ...] = ()
    _outer: "subprocess.Popen[bytes] | None" = None
    _pid: int = 0
    _groups: list[Path] = field(default_factory=list)

    def __post_init__(self) -> None:
        # Short: paths of sockets below it may have 107 bytes. The same after each boot.
        self._home = Path(tempfile.mkdtemp(prefix="onward-m-"))
        self.root = self._home / "root"
        """The root directory of the machine, seen from here."""

    def boot(self) -> None:
        """Boot, and return when the boot has come to its end: every enabled unit is up, or has failed."""
        self._work = self._home / "work"
        self._work.mkdir()
        self.state.mkdir(exist_ok=True)
        if self.disk and not (image := self.state / "disk.img").exists():
            with image.open("wb") as file:
                file.truncate(DISK_BYTES)
            subprocess.run(["mke2fs", "-q", "-t", "ext4", str(image)], check=True)
        hierarchy, bases = _hierarchies()
        self._groups = [base / self._home.name for base in bases]
        for group in self._groups:
            group.mkdir()
        places = (str(self._work), str(self.state), str(self.units), str(self.opt))
        init = ["bash", str(INIT), *places, hierarchy, "1" if self.disk else "", " ".join(self.enable)]
        groups = [str(len(self._groups)), *map(str, self._groups)]
        spaces = ["unshare", "--pid", "--mount", "--uts", "--ipc", "--net", "--fork", "--kill-child=KILL"]
        with (self.state / "init.log").open("ab") as log:
            self._outer = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *spaces, "bash", "-c", MOVED, "-", *groups, *init],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        until(self._answers, 60)
        self.run("timeout", "100", "systemctl", "is-system-running", "--wait", check=False)

    def _answers(self) -> bool:
        assert self._outer is not None
        assert self._outer.poll() is None, f"no boot: {(self.state / 'init.log').read_text()[-2000:]}"
        children = Path(f"/proc/{self._outer.pid}/task/{self._outer.pid}/children").read_text().split()
        self._pid = int(children[0]) if children else 0
        self.root.unlink(missing_ok=True)
        self.root.symlink_to(f"/proc/{self._pid}/root")
        with suppress(OSError):
            # Before the root is turned, what is seen there are the files of the host.
            comm = Path(f"/proc/{self._pid}/comm").read_text().strip()
            return comm == "systemd" and (self.root / "run/systemd/private").is_socket()
        return False

    @property
    def alive(self) -> bool:
        return self._outer is not None and self._outer.poll() is None

    def run(self, *argv: str, check: bool = True, timeout_s: float = 120.0) -> "subprocess.CompletedProcess[str]":
        """Run a program inside, as root."""
        done = subprocess.run(
            ["nsenter", "--all", f"--target={self._pid}", "--", *argv],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        assert not check or done.returncode == 0, f"{argv}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
        return done

    def property(self, name: str, unit: str = "onward.service") -> str:
        """Return a property of a unit, as `systemctl show` has it."""
        return self.run("systemctl", "show", "-p", name, "--value", unit).stdout.strip()

    def poweroff(self) -> None:
        """Shut down in order; returns when the machine is off."""
        self.run("systemctl", "poweroff", check=False)
        until(lambda: not self.alive, 100)
        self.end()

    def cut_power(self) -> None:
        """Lose the power: of the disk only what was flushed is left."""
        lib = os.open(self.root / "var/lib", os.O_RDONLY)
        try:
            fcntl.ioctl(lib, EXT4_SHUTDOWN, WITHOUT_LOG_FLUSH)
        finally:
            os.close(lib)
        self.end()

    def end(self) -> None:
        """End it at once, with everything in it; the page cache survives, unlike at a power cut."""
        if self._outer is None:
            return
        self._outer.kill()  # --kill-child takes PID 1 along, and PID 1 its whole namespace
        self._outer.wait()
        self._outer = None
        until(lambda: not Path(f"/proc/{self._pid}").exists(), 60)
        for group in self._groups:
            until(lambda group=group: _removed(group), 60)  # type: ignore[misc]  # mypy: a lambda with a default
        self._work.rmdir()

    def close(self) -> None:
        """End it, and leave nothing of it."""
        self.end()
        shutil.rmtree(self._home)


def _hierarchies() -> tuple[str, list[Path]]:
    """Return the kind of the cgroup tree, and in each hierarchy the directory below which a machine gets its group."""
    kind, bases = "hybrid", []
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "cpuset":
            continue  # one of version 1 starts empty, and systemd does not use it
        if controllers:
            base = Path("/sys/fs/cgroup", controllers.removeprefix("name="))
        elif (unified := Path("/sys/fs/cgroup/unified")).is_dir():
            base = unified
        else:
            kind, base, path = "unified", Path("/sys/fs/cgroup"), "/"
        if (group := base / path.lstrip("/")).is_dir():
            bases.append(group)
    return kind, bases


def _removed(group: Path) -> bool:
    with suppress(OSError):
        for directory, _, _ in os.walk(group, topdown=False):
            os.rmdir(directory)
    return not group.exists()
