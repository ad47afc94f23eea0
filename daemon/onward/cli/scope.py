"""Where a service is installed: for the machine or for one user. Whatever is placed or removed is said."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from onward.cli.terminal import say
from onward.errors import Refused

LINK = "current"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The places of a service."""

    user: bool
    units: Path
    versions: Path
    config: Path
    sysusers: Path = Path("/etc/sysusers.d/onward.conf")
    tmpfiles: Path = Path("/etc/tmpfiles.d/onward.conf")

    @property
    def unit_source(self) -> str:
        return "onward-user.service" if self.user else "onward.service"

    @property
    def drop_ins(self) -> Path:
        return self.units / "onward.service.d"

    @property
    def current(self) -> Path:
        return self.versions / LINK

    @property
    def systemctl(self) -> tuple[str, ...]:
        return ("systemctl", "--user") if self.user else ("systemctl",)

    def check_user(self) -> None:
        """Refuse to act for somebody else.

        Raises:
            Refused: The machine's service without being root.
        """
        if not self.user and os.geteuid() != 0:
            raise Refused("the service of the machine is root's to install: use sudo, or --user for a service of yours")

    def put(self, source: Path, target: Path) -> None:
        self.write(target, source.read_text())

    def write(self, target: Path, text: str) -> None:
        """Place a file, whole or not at all."""
        self.make_directory(target.parent)
        temp = target.with_name(f".{target.name}.new")
        temp.write_text(text)
        temp.chmod(0o644)
        temp.replace(target)
        say(f"wrote {target}")

    def make_directory(self, path: Path) -> None:
        for part in reversed([p for p in (path, *path.parents) if not p.exists()]):
            part.mkdir(mode=0o755)
            part.chmod(0o755)

    def link(self, target: str) -> None:
        """Let `current` be another version, in one step."""
        temp = self.versions / f".{LINK}.new"
        temp.unlink(missing_ok=True)
        temp.symlink_to(target)
        temp.replace(self.current)
        say(f"{self.current} is {target}")

    def remove(self, path: Path) -> None:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.is_symlink() or path.exists():
            path.unlink()
        else:
            return
        say(f"removed {path}")

    def remove_drop_ins(self) -> None:
        """Remove the drop-ins that were placed here; those of the administrator stay."""
        for path in (self.drop_ins / "254.conf", *sorted(self.drop_ins.glob("allow-*.conf"))):
            self.remove(path)
        if self.drop_ins.is_dir() and not any(self.drop_ins.iterdir()):
            self.remove(self.drop_ins)

    def remove_versions(self) -> None:
        """Remove the versions that were installed here, and nothing else that may lie beside them."""
        self.remove(self.current)
        if self.versions.is_dir():
            for path in sorted(self.versions.iterdir()):
                if (path / "pyvenv.cfg").is_file() and not path.is_symlink():
                    self.remove(path)
            if not any(self.versions.iterdir()):
                self.remove(self.versions)


def scope_of(*, user: bool) -> Scope:
    """Return the places of this user's own service, or of the machine's."""
    if not user:
        return Scope(
            user=False, units=Path("/etc/systemd/system"), versions=Path("/opt/onward"), config=Path("/etc/onward")
        )
    home = Path.home()
    config = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    return Scope(
        user=True,
        units=config / "systemd/user",
        versions=home / ".local/share/onward",
        config=config / "onward",
    )
