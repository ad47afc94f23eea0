"""The daemon from exec to its first answer in an empty directory, what it weighs when idle, and `onward ps`."""

import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.common import fresh_dir, quiet, row, rss_kib, show

ONWARD = Path(sys.executable).with_name("onward")
DEADLINE_S = 60.0


@contextmanager
def daemon(home: Path) -> "Iterator[subprocess.Popen[bytes]]":
    """A daemon of its own; it is ended on the way out."""
    with (home / "log").open("ab") as log:
        process = subprocess.Popen([ONWARD, "daemon"], env=_environment(home), stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(timeout=DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def ready(process: "subprocess.Popen[bytes]", home: Path) -> float:
    """Wait for the first answer of /readyz; returns the time of day."""
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end and process.poll() is None:
        try:
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(DEADLINE_S)
                client.connect(str(home / "onward.sock"))
                client.sendall(b"GET /readyz HTTP/1.1\r\nhost: localhost\r\n\r\n")
                if client.recv(4096).startswith(b"HTTP/1.1 200"):
                    return time.time()
        except OSError:
            pass
        time.sleep(0.002)
    raise RuntimeError(f"the daemon did not come up: {(home / 'log').read_text()}")


def _environment(home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ONWARD_")}
    return kept | {"ONWARD_HOME": str(home)}


def exec_to_ready() -> tuple[float, float]:
    """Return milliseconds, and MiB a little later."""
    with fresh_dir() as home:
        quiet()
        began = time.time()
        with daemon(home) as process:
            took_ms = (ready(process, home) - began) * 1e3
            time.sleep(0.5)
            return took_ms, rss_kib(process.pid) / 1024


def took_ms(*command: object, home: Path) -> float:
    began = time.perf_counter()
    subprocess.run(list(map(str, command)), env=_environment(home), check=True, timeout=60, capture_output=True)
    return (time.perf_counter() - began) * 1e3


def main(rounds: int = 7) -> None:
    starts = [exec_to_ready() for _ in range(rounds)]
    milliseconds, mebibytes = zip(*starts, strict=True)
    with fresh_dir() as home, daemon(home) as process:
        ready(process, home)
        quiet()
        ps = [took_ms(ONWARD, "ps", home=home) for _ in range(15)]
        bare = [took_ms(sys.executable, "-c", "pass", home=home) for _ in range(15)]
    show(interpreter_ms=statistics.median(bare), of="python -c pass")
    row("daemon, exec to ready: ms", statistics.median(milliseconds), at_most=700, best=min(milliseconds))
    row("idle daemon, RSS MiB", statistics.median(mebibytes), at_most=80)
    row("onward ps, whole process: ms", statistics.median(ps), at_most=200, best=min(ps))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
