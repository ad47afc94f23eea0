"""The verbs `onward service ...`: place the service, its versions and its exceptions, and take all of it away again."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from onward.cli.scope import Scope
from onward.cli.terminal import say
from onward.config.places import shipped
from onward.errors import BadRequest, OnwardError

DELEGATES_SUBGROUPS = 254
"""The systemd that knows what stands in the drop-in 254.conf."""
_WHEEL = re.compile(r"onward-([0-9][^-]*)-.*\.whl")


def install(wheel: Path | None, scope: Scope) -> int:
    """Place units and, where one is given, the version in `wheel`; start the service, or restart it into them.

    Raises:
        OnwardError: The service does not start. What was installed before is what runs again.
    """
    scope.check_user()
    before = _before(scope)
    if wheel is not None:
        _place_version(wheel, scope)
    elif not scope.current.exists():
        _use_running_installation(scope)
    _place_units(scope)
    _do(*scope.systemctl, "enable", "onward.service")
    _restart(scope, before)
    _say_where(scope)
    return 0


def upgrade(wheel: Path, scope: Scope) -> int:
    """Install the version in `wheel` beside the others and restart into it; commands go on meanwhile.

    Raises:
        OnwardError: The service does not start with it. The version before is what runs again.
    """
    scope.check_user()
    before = _before(scope)
    if before is None:
        raise BadRequest("no service is installed: onward service install first")
    version = _place_version(wheel, scope)
    _place_units(scope)
    _restart(scope, before)
    say(f"runs {version}; to go back: ln -sfn {before} {scope.current} && {' '.join(scope.systemctl)} restart onward")
    return 0


def allow_path(directory: Path, scope: Scope) -> int:
    """Let the service, and so its agents, write below `directory`."""
    scope.check_user()
    if scope.user:
        raise BadRequest("the service of a user may write wherever the user may: there is nothing to allow")
    path = directory.resolve()
    if not path.is_dir():
        raise BadRequest(f"{str(directory)!r} is no directory")
    if (reason := why_not_allowed(path)) is not None:
        raise BadRequest(reason)
    # With the minus a directory that is away (not mounted) keeps nobody from starting.
    lines = ["[Service]", f"ReadWritePaths=-{path}"]
    if any(path.is_relative_to(home) for home in ("/home", "/root", "/run/user")):
        lines = ["[Service]", "ProtectHome=tmpfs", f"BindPaths=-{path}"]
    scope.write(scope.drop_ins / f"allow-{_escaped(path)}.conf", "\n".join(lines) + "\n")
    _do(*scope.systemctl, "daemon-reload")
    _do(*scope.systemctl, "try-restart", "onward.service")
    say(f"the service may write below {path}; the user `onward` needs permission there too, for example:")
    say(f"  setfacl -R -m u:onward:rwX -m d:u:onward:rwX {path}")
    return 0


def why_not_allowed(path: Path) -> str | None:
    """Return why no unit file can let the machine's service write below an absolute path, or None."""
    if not str(path).isprintable() or set(str(path)) & set(" \"'\\%:"):
        return f"{str(path)!r} cannot be named in a unit file: it holds a space, quote, colon, % or backslash"
    if path.is_relative_to("/tmp"):  # noqa: S108  (it is named, not used)
        return (
            f"{str(path)!r} is not what the service sees there: its /tmp is /var/lib/onward/tmp. Name another directory"
        )
    return None


def uninstall(scope: Scope) -> int:
    """Stop the service and remove what `install`, `upgrade` and `allow-path` placed; runs and configuration stay."""
    scope.check_user()
    _do(*scope.systemctl, "disable", "--now", "onward.service", check=False)
    if not scope.user:
        _do(*scope.systemctl, "disable", "--now", "onward.socket", check=False)
    scope.remove(scope.units / "onward.service")
    scope.remove(scope.units / "onward.socket")
    scope.remove_drop_ins()
    if not scope.user:
        scope.remove(scope.sysusers)
        scope.remove(scope.tmpfiles)
    scope.remove_versions()
    _do(*scope.systemctl, "daemon-reload")
    kept = (
        "~/.local/state/onward, ~/.config/onward" if scope.user else "/var/lib/onward, /etc/onward, the user `onward`"
    )
    say(f"runs and configuration are left: {kept}")
    return 0


def _linked(scope: Scope) -> str | None:
    return os.readlink(scope.current) if scope.current.is_symlink() else None


def _before(scope: Scope) -> str | None:
    """Return what to go back to: the version that runs, else the one that is to."""
    running = _running(scope)
    return running.name if running is not None and running.parent == scope.versions else _linked(scope)


def _running(scope: Scope) -> Path | None:
    """Return the installation that the daemon runs from, which need not be `current`; None while none runs."""
    told = _do(*scope.systemctl, "show", "-p", "MainPID", "--value", "onward.service", check=False).strip()
    try:
        # By its own name: the link of a virtual environment's interpreter leads out of it.
        program = Path(f"/proc/{int(told)}/cmdline").read_bytes().split(b"\0")[0]
    except (OSError, ValueError):
        return None
    return Path(os.fsdecode(program)).parent.parent


def _place_units(scope: Scope) -> None:
    """Place the units that `current` is shipped with, and what they need."""
    shipped_there = scope.current.glob("lib/python*/site-packages/onward/_data/systemd")
    units = next(shipped_there, None) or shipped("systemd")
    scope.put(units / scope.unit_source, scope.units / "onward.service")
    if not scope.user:
        scope.put(units / "onward.socket", scope.units / "onward.socket")
        scope.put(units / "onward.sysusers", scope.sysusers)
        scope.put(units / "onward.tmpfiles", scope.tmpfiles)
        scope.make_directory(scope.config)
    if _systemd_version() >= DELEGATES_SUBGROUPS:
        scope.put(units / "onward.service.d/254.conf", scope.drop_ins / "254.conf")
    if not scope.user:
        _do("systemd-sysusers", str(scope.sysusers))
        _do("systemd-tmpfiles", "--create", str(scope.tmpfiles))
    _do(*scope.systemctl, "daemon-reload")


def _restart(scope: Scope, before: str | None) -> None:
    """Restart into `current`; where that fails, go back to `before` and say so."""
    try:
        _do(*scope.systemctl, "restart", "onward.service")
    except OnwardError as error:
        tried = _linked(scope)
        if before in (None, tried):
            raise
        say(f"{tried} does not start: {error}")
        scope.link(str(before))
        _place_units(scope)
        # Else the failed starts of the other version would count against this one.
        _do(*scope.systemctl, "reset-failed", "onward.service", check=False)
        _do(*scope.systemctl, "restart", "onward.service")
        raise OnwardError(f"{before} runs again, because {tried} does not start") from error


def _place_version(wheel: Path, scope: Scope) -> str:
    """Make `<version>/` from the wheel and let `current` be it; returns the version. A half one is made anew."""
    os.umask(0o022)  # the service's user must be able to read it
    found = _WHEEL.fullmatch(wheel.name)
    if found is None or not wheel.is_file():
        raise BadRequest(f"{str(wheel)!r} is no wheel of Onward (onward-VERSION-py3-none-any.whl)")
    version = found[1]
    target = scope.versions / version
    running = _running(scope)
    if running is not None and running.exists() and target.exists() and target.samefile(running):
        raise BadRequest(f"{version} is what runs now: a living installation is never changed. Give it another version")
    scope.make_directory(scope.versions)
    shutil.rmtree(target, ignore_errors=True)
    try:
        _do(_base_python(), "-m", "venv", str(target))
        # -I: what a PYTHONPATH holds is not there for the service.
        pip = (str(target / "bin/python"), "-I", "-m", "pip", "--disable-pip-version-check", "-q")
        _do(*pip, "install", str(wheel.resolve()))
        _do(str(target / "bin/onward"), "--help")
    except OnwardError:
        shutil.rmtree(target, ignore_errors=True)
        raise
    say(f"made {target}")
    scope.link(version)
    return version


def _use_running_installation(scope: Scope) -> None:
    running = Path(sys.prefix)
    if sys.prefix == sys.base_prefix or not (running / "bin/onward").exists():
        raise BadRequest("name the wheel that the service is to run: onward service install WHEEL")
    hidden = [home for home in ("/home", "/root", "/run/user", "/tmp") if running.is_relative_to(home)]  # noqa: S108
    if not scope.user and hidden:
        raise BadRequest(
            f"{running} lies below {hidden[0]}, which the service cannot see: onward service install WHEEL"
        )
    scope.make_directory(scope.versions)
    scope.link(str(running))


def _base_python() -> str:
    """The interpreter itself: a virtual environment made from one that is removed later would die with it."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return next((p for p in (f"{sys.base_prefix}/bin/{name}",) if os.access(p, os.X_OK)), sys.executable)


def _systemd_version() -> int:
    told = _do("systemctl", "--version")
    found = re.match(r"systemd (\d+)", told)
    return int(found[1]) if found else 0


def _say_where(scope: Scope) -> None:
    say("the service runs. Its log: " + " ".join(["journalctl", *(["--user"] if scope.user else []), "-u", "onward"]))
    if not scope.user:
        say("keys: /etc/credstore/anthropic-api-key, openai-api-key (root, 0600); settings: /etc/onward/onward.toml")
        say("workspaces: below /var/lib/onward/workspaces, or onward service allow-path DIR")
    elif not _lingers():
        say("WARNING: a logout ends all that is yours, this service and its commands too: loginctl enable-linger")


def _lingers() -> bool:
    told = _do("loginctl", "show-user", str(os.getuid()), "-p", "Linger", "--value", check=False)
    return told.strip() == "yes" or Path("/var/lib/systemd/linger", _user_name()).exists()


def _user_name() -> str:
    import pwd

    return pwd.getpwuid(os.getuid()).pw_name


def _escaped(path: Path) -> str:
    # As systemd-escape(1): no two directories share a file.
    return str(path).strip("/").replace("-", r"\x2d").replace("/", "-") or "-"


def _do(*command: str, check: bool = True) -> str:
    """Run a program; its own words are the error."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    except OSError as error:
        raise OnwardError(f"{command[0]} cannot be run: {error.strerror}") from error
    if check and done.returncode != 0:
        words = (done.stderr or done.stdout).strip()[-2000:]
        raise OnwardError(f"{' '.join(command)} failed with status {done.returncode}: {words}")
    return done.stdout
