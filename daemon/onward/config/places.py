"""Where the configuration, the runs and the socket are. No pydantic here: every `onward ps` imports this module."""

import os
import stat
from dataclasses import dataclass, replace
from pathlib import Path

import onward
from onward.errors import BadConfiguration, NotFound

SOCKET_NAME = "onward.sock"
SETTINGS_FILE = "onward.toml"
SYSTEM_CONFIG = Path("/etc/onward")
SYSTEM_SOCKET = Path("/run/onward") / SOCKET_NAME

# sun_path of unix(7) has 108 bytes, one of them for the NUL at the end.
MAX_SOCKET_BYTES = 107


def shipped(folder: str) -> Path:
    """Return a data folder that Onward is shipped with (`"config"`, `"systemd"`), installed or in a checkout.

    Raises:
        BadConfiguration: The installation is not whole.
    """
    package = Path(onward.__file__).resolve().parent
    installed, checkout = package / "_data" / folder, package.parents[1] / folder
    if installed.is_dir():
        return installed
    # Beside pyproject.toml only: a folder that happens to stand two levels above site-packages is not ours.
    if checkout.is_dir() and (package.parents[1] / "pyproject.toml").is_file():
        return checkout
    raise BadConfiguration(f"the installed package has no {folder!r} folder ({installed}); install Onward again")


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The directories of one instance. `config_dirs` are those of people, the one that wins first; none need exist."""

    config_dirs: tuple[Path, ...]
    runs_dir: Path
    socket: Path

    @property
    def settings_files(self) -> tuple[Path, ...]:
        """The places of `onward.toml`, the one that wins first."""
        return tuple(directory / SETTINGS_FILE for directory in self.config_dirs)

    @property
    def agent_dirs(self) -> tuple[Path, ...]:
        """The directories of agent definitions, the one that wins first; the shipped one is last."""
        return tuple(directory / "agents" for directory in (*self.config_dirs, shipped("config")))

    def override(self, *, runs_dir: Path | None = None, socket: Path | None = None) -> "Places":
        """Return these places with what settings or flags say instead; None keeps what is there."""
        return replace(self, runs_dir=runs_dir or self.runs_dir, socket=socket or self.socket)

    def find_script(self, path: str) -> Path:
        """Return the file of the model `scripted/PATH`: absolute, or relative to a configuration directory.

        Raises:
            NotFound: There is no such file.
        """
        candidates = [directory / path for directory in (*self.config_dirs, shipped("config"))]
        found = next((file for file in candidates if file.is_file()), None)
        if found is None:
            looked = ", ".join(dict.fromkeys(map(str, candidates)))
            raise NotFound(f"there is no script {path!r} for the scripted model (looked for {looked})")
        return found


SERVICE = Places(config_dirs=(SYSTEM_CONFIG,), runs_dir=Path("/var/lib/onward/runs"), socket=SYSTEM_SOCKET)
"""The machine's service, as its unit has it."""


def find_places() -> Places:
    """Return the places of the instance that the environment means. Reads and creates nothing."""
    if home := _path("ONWARD_HOME"):
        places = Places(config_dirs=(home / "config",), runs_dir=home / "runs", socket=home / SOCKET_NAME)
    else:
        places = Places(config_dirs=_config_dirs(), runs_dir=_state_dir() / "runs", socket=_own_socket())
    return places.override(socket=_path("ONWARD_SOCKET"))


def find_client_places() -> Places:
    """Return the places of the instance that a command of this user speaks to: the machine's service, if it is that."""
    own = find_places()
    found = next((path for path in find_sockets() if path.exists()), None)
    return SERVICE if found == SERVICE.socket and found != own.socket else own


def find_sockets() -> tuple[Path, ...]:
    """Return where a client looks for the daemon's socket; the first that exists is the one."""
    if socket := _path("ONWARD_SOCKET"):
        return (socket,)
    if home := _path("ONWARD_HOME"):
        return (home / SOCKET_NAME,)
    return (_user_socket(), SYSTEM_SOCKET)


def check_socket(socket: Path) -> Path:
    """Return `socket` if the kernel can take its path.

    Raises:
        BadConfiguration: The path is too long for a Unix socket.
    """
    length = len(os.fsencode(socket))
    if length > MAX_SOCKET_BYTES:
        raise BadConfiguration(
            f"the socket path {str(socket)!r} has {length} bytes; a Unix socket path has at most {MAX_SOCKET_BYTES}. "
            "Choose a shorter ONWARD_HOME, or set ONWARD_SOCKET or [daemon] socket to a short path"
        )
    return socket


def _path(variable: str) -> Path | None:
    value = os.environ.get(variable)
    return Path(os.path.abspath(os.path.expanduser(value))) if value else None


def _systemd(variable: str) -> Path | None:
    """The first path of a directory variable of systemd.exec(5), which may name several with colons between."""
    first = os.environ.get(variable, "").split(":", 1)[0]
    return Path(first) if first else None


def _config_dirs() -> tuple[Path, ...]:
    if under_systemd := _systemd("CONFIGURATION_DIRECTORY"):
        return (under_systemd,)
    from platformdirs import user_config_path

    return (user_config_path("onward"), SYSTEM_CONFIG)


def _state_dir() -> Path:
    if under_systemd := _systemd("STATE_DIRECTORY"):
        return under_systemd
    from platformdirs import user_state_path

    return user_state_path("onward")


def _own_socket() -> Path:
    runtime = _systemd("RUNTIME_DIRECTORY")
    return runtime / SOCKET_NAME if runtime else _user_socket()


def _user_socket() -> Path:
    """The socket of this user's own daemon; where there is no runtime directory it stands beside the runs.

    Not platformdirs' runtime directory, which can be one below /tmp that another user made first, to listen there.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    if os.path.isabs(runtime) and _is_own_directory(runtime):
        return Path(runtime) / "onward" / SOCKET_NAME
    return _state_dir() / SOCKET_NAME


def _is_own_directory(path: str) -> bool:
    try:
        found = os.stat(path)
    except OSError:
        return False
    return found.st_uid == os.getuid() and stat.S_ISDIR(found.st_mode)
