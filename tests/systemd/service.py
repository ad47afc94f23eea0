"""Onward as the service of a private machine: the installed wheel under the shipped unit."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

from tests.e2e.instances import Answer, Instance, Json
from tests.support import until
from tests.systemd.machine import Machine

ROOT = Path(__file__).parents[2]
HOME = Path("/var/lib/onward")
NOT_NEEDED = (
    "mypy",
    "mypyc",
    "ruff*",
    "pip",
    "setuptools",
    "hypothesis",
    "*__mypyc*",
    "__pycache__",
    "*.pth",
    "onward*",
)


def interpreter() -> str | None:
    """Return a Python that services may execute (none in a home directory), to which these dependencies belong."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    found = [str(Path(base, name)) for base in ("/usr/bin", "/usr/local/bin") if Path(base, name).exists()]
    return found[0] if found else None


def build(opt: Path) -> None:
    """Make what becomes /opt: the wheel, installed in a virtual environment of its own, and the sysusers file."""
    build_parts(opt)
    python = interpreter()
    assert python is not None
    venv = opt / "onward/1"
    subprocess.run([python, "-m", "venv", "--without-pip", str(venv)], check=True, capture_output=True)
    (site,) = venv.glob("lib/python*/site-packages")
    shutil.copytree(opt / "unpacked", site, dirs_exist_ok=True)
    (site / "dependencies.pth").write_text("/opt/dependencies\n")
    program = venv / "bin/onward"
    program.write_text("#!/opt/onward/1/bin/python\nimport sys\nfrom onward.cli.main import main\nsys.exit(main())\n")
    program.chmod(0o755)
    (opt / "onward/current").symlink_to("1")


def build_parts(opt: Path) -> None:
    """Make the wheel, the same unpacked, and the packages that it needs: those of this environment."""
    wheel = build_wheel(ROOT, opt / "dist")
    zipfile.ZipFile(wheel).extractall(opt / "unpacked")
    site = Path(next(path for path in sys.path if path.endswith("site-packages")))
    leave_out = shutil.ignore_patterns(*NOT_NEEDED)
    shutil.copytree(site, opt / "dependencies", ignore=leave_out, copy_function=_link)
    shutil.copy(ROOT / "systemd/onward.sysusers", opt)


def build_wheel(source: Path, target: Path) -> Path:
    """Build a wheel, without a network; returns it."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)]
    before = set(target.glob("*.whl"))
    subprocess.run(build, cwd=source, check=True, capture_output=True)
    (wheel,) = set(target.glob("*.whl")) - before
    return wheel


def build_next_wheel(target: Path, scratch: Path) -> Path:
    """Build the wheel of a next version with the same code."""
    for name in ("daemon", "config", "systemd"):
        shutil.copytree(ROOT / name, scratch / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "README.md", scratch)
    shutil.copy(ROOT / "pyproject.toml", scratch)
    for file in (scratch / "pyproject.toml", scratch / "daemon/onward/__init__.py"):
        file.write_text(re.sub(r"(?m)^(version|__version__) = .*", r'\1 = "99.0"', file.read_text()))
    return build_wheel(scratch, target)


def break_wheel(wheel: Path) -> None:
    """Let the daemon of a wheel end at once; its command line goes on to answer."""
    whole = wheel.rename(wheel.with_suffix(".whole"))
    with zipfile.ZipFile(whole) as source, zipfile.ZipFile(wheel, "w") as target:
        for name in source.namelist():
            broken = name == "onward/supervisor/main.py"
            target.writestr(source.getinfo(name), b"raise SystemExit(1)\n" if broken else source.read(name))
    whole.unlink()


def add_boot_id(units: Path) -> None:
    """Let the unit see which boot of its machine this is: in a /proc of its own it would see the host's."""
    (units / "onward.service.d").mkdir(parents=True)
    bind = "[Service]\nBindReadOnlyPaths=/run/boot_id:/proc/sys/kernel/random/boot_id\n"
    (units / "onward.service.d/boot-id.conf").write_text(bind)


def _link(source: str, target: str) -> str:
    try:
        Path(target).hardlink_to(source)
    except OSError:
        shutil.copy2(source, target)
    return target


class Service(Instance):
    """The daemon of a machine. `home` and what is below it are seen from here, `HOME` is what it is inside."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.home = machine.root / str(HOME).lstrip("/")
        self.runs = self.home / "runs"
        self.workspace = self.home / "workspaces/shared"
        self.env: dict[str, str] = {}

    @property
    def socket(self) -> Path:
        return self.machine.root / "run/onward/onward.sock"

    @property
    def pid(self) -> int:
        """The daemon's, as it is inside."""
        return int(self.machine.property("MainPID"))

    @property
    def boot_id(self) -> str:
        """The boot as the daemon sees it."""
        return str(json.loads((self.runs / ".lock").read_text())["boot_id"])

    def script(self, *turns: Any, name: str = "script.json") -> str:
        (self.home / name).write_text(json.dumps({"turns": turns}))
        return f"scripted/{HOME / name}"

    def make_workspace(self, name: str) -> Path:
        """Make a workspace; returns it as it is seen from here."""
        path = self.home / "workspaces" / name
        path.mkdir()
        owner = self.home.stat()
        os.chown(path, owner.st_uid, owner.st_gid)
        return path

    def ask_for(self, model: str, *, key: str | None = None, task: str = "do it", **members: Any) -> Answer:
        workspace = members.pop("workspace", "shared")
        return self.post(
            "/v1/runs",
            {"task": task, "workspace": str(HOME / "workspaces" / workspace), "model": model, **members},
            **({} if key is None else {"Idempotency-Key": key}),
        )

    def systemctl(self, *words: str, check: bool = True) -> str:
        return self.machine.run("systemctl", *words, check=check).stdout

    def until_back(self, but: int) -> None:
        """Wait until another daemon than this one serves."""
        until(lambda: self.serves() and self.pid not in (0, but), 60)

    def serves(self) -> bool:
        try:
            return self.get("/readyz").status == 200
        except OSError:
            return False

    def logged(self, *words: str) -> list[Json]:
        """Return the journal's entries of the unit."""
        told = self.machine.run("journalctl", "-u", "onward.service", "-o", "json", "--no-pager", *words).stdout
        return [json.loads(line) for line in told.splitlines()]
