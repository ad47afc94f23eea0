"""The launcher: runs one command, outlives the daemon, and leaves evidence of how the command ended.

Started as `python -I -S launcher.py` with a marshalled dict on stdin, so nothing of it shows in a process list. It
imports as little as it can (interpreter start is most of what a call costs), and everything before the command starts:
an upgrade may replace these files while it runs.

In the call's directory, as protocol 1:

* `identity` says who the launcher is; it holds a lock on that file for its whole life. `link(2)` puts it there, so
  either this launcher or a recovery's fence stands under that name, never both: whoever comes second does nothing.
* `stdout`, `stderr` hold the output, bounded.
* `exit` appears when the whole tree is gone and the output is on the disk.

Time is the monotonic clock: while the machine sleeps no deadline and no grace is used up.

SIGUSR1 asks to cancel, SIGTERM to stop (TERM to the whole tree, a minute of grace), SIGUSR2 ends the grace.
"""

import marshal
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from onward.processes.launcher_call import Call
else:
    # Only the program itself is compiled at each start; what it imports comes from the cache.
    sys.path.insert(0, os.path.dirname(__file__))
    from launcher_call import Call

    del sys.path[0]


def main() -> None:
    """Run one launch; the exit status is the errno of what prevented it, before anything was started."""
    os.closerange(3, 1 << 20)  # whatever leaked into here, above all the daemon's lock, is let go
    spec = marshal.loads(sys.stdin.buffer.read())  # noqa: S302  (from the daemon itself, by a private descriptor)
    null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    if os.getsid(0) != os.getpid():
        os.setsid()
    os.umask(0o077)
    os.chdir("/")
    try:
        call = Call(spec)
        call.prepare()
        call.take_identity()
    except OSError as error:
        os._exit(error.errno or 255)
    call.start()
    call.watch()
    call.record()
    os._exit(0)


if __name__ == "__main__":
    main()
