"""A file system that answers until it is told to be dead, as a network mount whose server is gone. For root only."""

import ctypes
import errno
import os
import select
import struct
import threading
from pathlib import Path

import pytest

LIBC = ctypes.CDLL(None, use_errno=True)
MNT_DETACH = 2
REQUEST = struct.Struct("<IIQ")
ANSWER = struct.Struct("<IiQ")
GETATTR, INIT, FORGET, BATCH_FORGET = 3, 26, 2, 42


def attributes() -> bytes:
    """The answer to GETATTR: a directory in which everybody may write, to be asked for again each time."""
    return struct.pack("<QII", 0, 0, 0) + struct.pack("<6Q10I", 1, 0, 0, 0, 0, 0, 0, 0, 0, 0o40777, 2, 0, 0, 0, 4096, 0)


class DeadMount:
    """An empty directory at `path`; from `die` on nothing that is asked of it comes back, until `live` or `close`.

    See fuse(4). Requests are left unread then, so that whoever waits for them can be killed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        options = f"fd={self._fd},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
        if LIBC.mount(b"dead", os.fsencode(path), b"fuse", 0, options):
            number = ctypes.get_errno()
            os.close(self._fd)
            raise OSError(number, os.strerror(number))
        self._lives, self._closed = threading.Event(), threading.Event()
        self._lives.set()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def die(self) -> None:
        self._lives.clear()

    def live(self) -> None:
        self._lives.set()

    def close(self) -> None:
        """Unmount: whoever still waits gets an error."""
        self._closed.set()
        self._lives.set()
        self._thread.join()
        LIBC.umount2(os.fsencode(self.path), MNT_DETACH)
        os.close(self._fd)

    def _serve(self) -> None:
        while not self._closed.is_set():
            readable, _, _ = select.select([self._fd], [], [], 0.02)
            if readable and self._lives.wait() and not self._closed.is_set():
                self._answer(os.read(self._fd, 1 << 17))

    def _answer(self, request: bytes) -> None:
        _, kind, unique = REQUEST.unpack_from(request)
        if kind in (FORGET, BATCH_FORGET):
            return
        known = {INIT: struct.pack("<4I2HI", 7, 31, 0, 0, 12, 9, 1 << 16).ljust(64, b"\0"), GETATTR: attributes()}
        body = known.get(kind)
        error = 0 if body is not None else -errno.ENOSYS
        os.write(self._fd, ANSWER.pack(ANSWER.size + len(body or b""), error, unique) + (body or b""))


needs_fuse = pytest.mark.skipif(
    os.geteuid() != 0 or not os.access("/dev/fuse", os.R_OK | os.W_OK), reason="only root can mount, and needs FUSE"
)
