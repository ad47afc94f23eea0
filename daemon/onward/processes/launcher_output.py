"""One output stream of a launched command: from its pipe into its file, bounded. Standard library only."""

import os

CHUNK = 1 << 16


class Output:
    """Keeps the first `head` and the last `tail` bytes of a stream in a file; `tail` None keeps all.

    The file grows to `head + 2 * tail` bytes before its middle is taken out, so at any time it holds the beginning and
    the newest output, in order, for whoever looks at a command that still runs or was lost. What the disk does not take
    waits in `pending`, and its pipe is not read meanwhile: the command waits for space, nothing is lost silently.
    """

    def __init__(self, directory: int, name: str, head: int, tail: "int | None") -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self.file = os.open(name, flags, 0o600, dir_fd=directory)
        self.directory, self.name = directory, name
        self.head, self.tail = head, tail
        self.length = self.dropped = 0
        self.pending = b""
        self.stalled_until = 0.0
        self.at_end = False
        self.damaged = False
        self.pipe, self.write_end = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.pipe, False)

    def started(self) -> None:
        """Close our copy of the command's end: the pipe ends when the last process of its tree has closed it."""
        os.close(self.write_end)

    def take(self) -> bool:
        """Move what is there, at most one chunk; False when there is nothing (yet, or any more)."""
        try:
            data = os.read(self.pipe, CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self.close_pipe()
            return False
        self.add(data)
        return True

    def close_pipe(self) -> None:
        self.at_end = True
        os.close(self.pipe)

    def add(self, data: bytes) -> None:
        """Append to the file.

        Raises:
            OSError: The disk did not take all of it; the rest is in `pending`.
        """
        self.pending += data
        while self.pending:
            written = os.pwrite(self.file, self.pending, self.length)
            self.length += written
            self.pending = self.pending[written:]
        if self.tail is not None and self.length > self.head + 2 * self.tail:
            self.cut(self.tail)

    def cut(self, tail: int) -> None:
        """Take out the middle: all but the first `head` and the last `tail` bytes."""
        surplus = self.length - self.head - tail
        if surplus <= 0:
            return
        source, target = self.head + surplus, self.head
        while source < self.length:
            part = os.pread(self.file, 1 << 18, source)
            # These blocks exist already, so a full disk does not stop this.
            target += os.pwrite(self.file, part, target)
            source += len(part)
        os.ftruncate(self.file, target)
        self.dropped += self.length - target
        self.length = target
        self.note()

    def note(self) -> None:
        """Leave a count of what was taken out in `<name>.cut`, for who looks at the file before there is an `exit`."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            fd = os.open(f"{self.name}.cut", flags, 0o600, dir_fd=self.directory)
            os.write(fd, self.report().encode())
            os.close(fd)
        except OSError:
            pass  # it is a convenience: `exit` is what counts

    def finish(self) -> None:
        """Bring the file to its final length and to the disk.

        Raises:
            OSError: Not yet; to be asked again.
        """
        self.add(b"")
        if self.tail is not None:
            self.cut(self.tail)
        try:
            os.fsync(self.file)
        except OSError:
            # The kernel may have thrown away the pages: a second fsync would succeed and prove nothing.
            self.damaged = True
            raise

    def report(self) -> str:
        """Return what `exit` says of this stream; a length of -1 never matches the file."""
        length = -1 if self.damaged else self.length
        return f'{{"protocol": 1, "length": {length}, "dropped": {self.dropped}, "head": {self.head}}}'
