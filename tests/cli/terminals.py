"""The real command line at a terminal, as a person sees it."""

import os
import pty
import select
import subprocess
import time
from dataclasses import dataclass, field

from tests.cli.serving import Cli


@dataclass
class Terminal:
    """A person at a terminal."""

    process: "subprocess.Popen[bytes]"
    master: int
    seen: str = field(default="")

    def until(self, text: str, timeout_s: float = 30.0) -> str:
        """Read until `text` has come after what was waited for before; returns what stands before it."""
        end = time.monotonic() + timeout_s
        while text not in self.seen:
            assert select.select([self.master], [], [], max(0.0, end - time.monotonic()))[0], f"{text!r}: {self.seen}"
            try:
                self.seen += os.read(self.master, 1 << 16).decode().replace("\r\n", "\n")
            except OSError:
                raise AssertionError(f"it ended before {text!r}: {self.seen}") from None
        before, _, self.seen = self.seen.partition(text)
        return before

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def reply(self, after: str, text: str) -> str:
        before = self.until(after) + self.until("> ")
        self.type(f"{text}\n")
        return before

    def interrupt(self) -> int:
        """Press Ctrl-C until it is heard; returns the exit code.

        CPython's readline can miss a signal that comes just before it waits for a key; a person presses again.
        """
        for _ in range(6):
            self.type("\x03")
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                continue
            break
        return self.ended()

    def ended(self) -> int:
        """Read to the end; returns the exit code."""
        while True:
            try:
                data = os.read(self.master, 1 << 16)
            except OSError:
                break
            if not data:
                break
            self.seen += data.decode()
        return self.process.wait(30)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)


def at_terminal(cli: Cli, *args: str, **environment: str) -> Terminal:
    """Run `onward` at a terminal of its own, so that Ctrl-C reaches it."""
    master, slave = pty.openpty()
    env = cli.environment(TERM="dumb", **environment)
    argv = ["setsid", "--ctty", "--wait", *cli.argv(*args)]
    process = subprocess.Popen(argv, stdin=slave, stdout=slave, stderr=slave, env=env, cwd=cli.home)
    os.close(slave)
    return Terminal(process, master)
