"""The service manager: what it hands over at the start, and what it is told (sd_notify(3)).

Without one (no NOTIFY_SOCKET) nothing is said to anybody.
"""

import ctypes
import faulthandler
import os
import socket
import time
from collections.abc import MutableMapping

import structlog

log = structlog.get_logger()

PR_SET_DUMPABLE = 4
FIRST_LISTENER = 3
"""The descriptor at which sockets begin that are handed over (sd_listen_fds(3))."""
MORE_S = 60.0
_HANDED = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "FDSTORE")


def guard_process() -> None:
    """Close memory, environment and descriptors to other processes of this user; let SIGABRT print all stacks."""
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    faulthandler.enable()


class ServiceManager:
    """Who started this daemon as a service, if anybody did.

    What could not be said (its queue was full) is said with the next message.
    """

    def __init__(
        self, address: str | None = None, *, watchdog_s: float | None = None, listener: socket.socket | None = None
    ) -> None:
        """Take the address of its socket (None: nobody listens) and the listening socket that it handed over."""
        self.address, self.watchdog_s, self.listener = address, watchdog_s, listener
        self._owed: dict[str, str] = {}
        self._socket: socket.socket | None = None
        if address is not None:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._socket.setblocking(False)

    @classmethod
    def from_environment(cls, environ: MutableMapping[str, str]) -> "ServiceManager":
        """Return what the environment says, and take it out of there: no child may have any of it."""
        said = {name: environ.pop(name, "") for name in _HANDED}
        watched = said["WATCHDOG_USEC"] if said["WATCHDOG_PID"] in ("", str(os.getpid())) else ""
        listener = None
        if said["LISTEN_PID"] == str(os.getpid()) and said["LISTEN_FDS"].isdigit() and int(said["LISTEN_FDS"]) > 0:
            listener = socket.socket(fileno=FIRST_LISTENER)
            listener.set_inheritable(False)
        return cls(
            said["NOTIFY_SOCKET"] or None,
            watchdog_s=int(watched) / 1e6 if watched.isdigit() and int(watched) else None,
            listener=listener,
        )

    def ready(self, status: str) -> None:
        self.tell(READY="1", STATUS=status)

    def reloading(self) -> None:
        self.tell(RELOADING="1", MONOTONIC_USEC=str(time.monotonic_ns() // 1000))

    def stopping(self, status: str) -> None:
        self.tell(STOPPING="1", STATUS=status)

    def alive(self, status: str) -> None:
        """Feed the watchdog. Only the loop that does the work may say this."""
        self.tell(STATUS=status, **({"WATCHDOG": "1"} if self.watchdog_s else {}))

    def progress(self, status: str) -> None:
        """Ask for `MORE_S` more to start or stop in, because something was really done."""
        self.alive(status)
        self.tell(EXTEND_TIMEOUT_USEC=str(int(MORE_S * 1e6)))

    def tell(self, **fields: str) -> None:
        """Send one message. A line break in a value would begin another field, so it becomes a space."""
        if self._socket is None or self.address is None:
            return
        self._owed.update({name: value.replace("\n", " ") for name, value in fields.items()})
        message = "\n".join(f"{name}={value}" for name, value in self._owed.items())
        address = "\0" + self.address[1:] if self.address.startswith("@") else self.address
        try:
            self._socket.sendto(message.encode(errors="replace"), address)
        except OSError as error:
            log.warning("the service manager was not reached", error=str(error))
        else:
            self._owed.clear()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
