"""A cgroup as a service manager delegates it, for tests that may make one."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from onward.processes import launcher_cgroup as kernel
from onward.processes.cgroups import locate
from onward.processes.launcher_kernel import read_small
from tests.support import until


def own_cgroup() -> Path | None:
    return locate(read_small("/proc/self/cgroup").decode(), read_small("/proc/self/mountinfo").decode())


@contextmanager
def delegated_cgroup() -> Iterator[Path]:
    """Make a cgroup that bears systemd's mark of delegation; whoever is in it at the end is killed."""
    above = own_cgroup()
    group = None if above is None else above / f"onward-test-{os.getpid()}-{secrets.token_hex(4)}"
    try:
        if group is None:
            pytest.skip("there is no cgroup v2 here")
        group.mkdir()
        os.setxattr(group, "user.delegate", b"1")
    except OSError as error:
        pytest.skip(f"no cgroup can be made here: {error}")
    try:
        yield group
    finally:
        kernel.kill(str(group))
        until(lambda: kernel.remove(str(group)))


def within(group: Path, argv: list[str]) -> list[str]:
    """Return the command line that runs `argv` in a group, as the same process."""
    return ["/bin/sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh", *argv]
