"""The last steps of a forked process on its way to be the command. Standard library only."""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from typing import Any, NoReturn

    from onward.processes import launcher_kernel as kernel
else:
    import _signal

    import launcher_kernel as kernel

ENOENT, ENOTDIR = 2, 20


def become(spec: "dict[str, Any]", launcher: int, out: int, err: int) -> "NoReturn":
    """Turn this forked process into the command; what prevents that is said on its stderr, with status 126 or 127."""
    try:
        kernel.prctl(kernel.PR_SET_PDEATHSIG, _signal.SIGKILL)
        if os.getppid() != launcher:  # it died before the line above
            os._exit(1)
        os.setsid()
        for number in _signal.valid_signals():
            if number not in (_signal.SIGKILL, _signal.SIGSTOP):
                _signal.signal(number, _signal.SIG_DFL)
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.umask(0o022)
        prefer_for_oom()
        if data_bytes := spec.get("data_bytes"):
            limit_data(data_bytes)
        where = spec["cwd"]
        os.chdir(where)
        where = spec["argv"][0]
        execute(spec["argv"], spec["env"])
    except OSError as error:
        os.write(2, b"onward: cannot run: " + os.fsencode(error.strerror or "error") + b": " + where + b"\n")
        os._exit(127 if error.errno == ENOENT and where == spec["argv"][0] else 126)
    except BaseException as error:  # noqa: BLE001  (nothing may return into a second launcher)
        os.write(2, f"onward: cannot run: {error!r}\n".encode())
    os._exit(126)


def prefer_for_oom() -> None:
    """Make the command a better victim than the daemon and this launcher."""
    try:
        fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
        os.write(fd, b"500")
        os.close(fd)
    except OSError:
        pass  # the system does not let us: then it is as good a victim as the others


def limit_data(size_bytes: int) -> None:
    """Bound the memory of its own that this process can write to; what V8 and the JVM only reserve does not count."""
    import resource

    resource.setrlimit(resource.RLIMIT_DATA, (size_bytes, size_bytes))


def execute(argv: "list[bytes]", env: "dict[bytes, bytes]") -> None:
    """Replace this process; a name without slash is looked up in the PATH of `env`."""
    name = argv[0]
    if b"/" in name:
        os.execve(name, argv, env)  # noqa: S606  (it is what this program is for)
    found: OSError | None = None
    for place in env.get(b"PATH", b"/usr/local/bin:/usr/bin:/bin").split(b":"):
        try:
            os.execve((place or b".") + b"/" + name, argv, env)  # noqa: S606  (as above)
        except OSError as error:
            if error.errno not in (ENOENT, ENOTDIR) or found is None:
                found = error
    raise found or OSError(ENOENT, "No such file or directory")
