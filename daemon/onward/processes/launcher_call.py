"""The launcher's one call, from its identity to its exit record. Standard library only; see launcher.py."""

import os
import select
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from typing import Any

    from onward.processes import launcher_cgroup as cgroup
    from onward.processes import launcher_command as command
    from onward.processes import launcher_kernel as kernel
    from onward.processes.launcher_kernel import fault
    from onward.processes.launcher_output import Output
else:
    import _signal

    import launcher_cgroup as cgroup
    import launcher_command as command
    import launcher_kernel as kernel
    from launcher_kernel import fault
    from launcher_output import Output

PROTOCOL = 1
ENOENT = 2  # the module `errno` would be one import more
ASKED_GRACE_S = 60.0  # the daemon knows the real grace and insists with SIGUSR2; this is for when it dies meanwhile
LEFTOVER_GRACE_S = 1.0
GIVE_UP_S = 10.0  # after the first KILL: a process that survives that long is not ours to end (other uid, stuck in I/O)


class Call:
    """One command from its start to its exit record."""

    def __init__(self, spec: "dict[str, Any]") -> None:
        self.spec = spec
        self.pid = os.getpid()
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        self.directory = os.open(spec["call_dir"], flags)
        names = (b"ONWARD_INSTANCE", b"ONWARD_RUN_ID", b"ONWARD_CALL_ID")
        env = spec["env"]
        # All three or none: fewer would match the processes of other calls.
        self.markers = frozenset(n + b"=" + env[n] for n in names) if all(n in env for n in names) else frozenset()
        # Not in specs of older daemons, nor where calls have no cgroups.
        self.cgroup: str | None = f"{spec['cgroup']}/{cgroup.COMMAND}" if spec.get("cgroup") else None
        self.asked: str | None = None
        self.insisted = False
        self.ended_by = "itself"
        self.status: int | None = None
        self.kill_at: float | None = None
        self.orphan_since: float | None = None
        self.next_ask = 0.0

    def prepare(self) -> None:
        """Get everything that can be refused (space, descriptors) before `identity` says that the call began.

        Raises:
            OSError: Nothing was started.
        """
        head, tail = self.spec["head_bytes"], self.spec["tail_bytes"]
        self.outputs = [Output(self.directory, name, head, tail) for name in ("stdout", "stderr")]
        self.listen()

    def listen(self) -> None:
        """Turn signals into flags and wake-ups; before `identity` exists nobody can send one that counts."""
        self.wake, wake_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        _signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
        for number in (_signal.SIGHUP, _signal.SIGINT, _signal.SIGQUIT, _signal.SIGPIPE, _signal.SIGXFSZ):
            _signal.signal(number, _signal.SIG_IGN)
        for number in (_signal.SIGTERM, _signal.SIGUSR1, _signal.SIGUSR2, _signal.SIGCHLD):
            _signal.signal(number, self.on_signal)
        _signal.pthread_sigmask(_signal.SIG_SETMASK, ())

    def on_signal(self, number: int, _frame: object) -> None:
        if number == _signal.SIGUSR2:
            self.insisted = True
        elif number == _signal.SIGTERM:
            self.asked = self.asked or "stop"
        elif number == _signal.SIGUSR1:
            self.asked = self.asked or "cancel"

    def take_identity(self) -> None:
        """Put `identity` in place, locked.

        Raises:
            FileExistsError: A fence or another launcher stands there: this one must not start anything.
        """
        parsed = kernel.parse_stat(kernel.read_small("/proc/self/stat"))
        boot_id = kernel.read_small("/proc/sys/kernel/random/boot_id").strip().decode()
        text = (
            f'{{"protocol": {PROTOCOL}, "pid": {self.pid}, "start_ticks": {parsed[1] if parsed else 0}, '
            f'"boot_id": "{boot_id}", "pid_ns": {os.stat("/proc/self/ns/pid").st_ino}, "call": {self.spec["about"]}}}\n'
        )
        temp = f"identity.{self.pid}.tmp"
        # Kept open, and so locked, until this process ends; not inherited by the command.
        self.lock = self.write_durably(temp, text.encode(), lock=True)
        fault("launcher.before_identity")
        try:
            os.link(temp, "identity", src_dir_fd=self.directory, dst_dir_fd=self.directory, follow_symlinks=False)
        finally:
            os.unlink(temp, dir_fd=self.directory)
        os.fsync(self.directory)
        fault("launcher.after_identity")

    def write_durably(self, name: str, data: bytes, *, lock: bool = False) -> int:
        try:  # noqa: SIM105  (contextlib costs an import)
            os.unlink(name, dir_fd=self.directory)  # never write into what somebody else may have put there
        except FileNotFoundError:
            pass
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(name, flags, 0o600, dir_fd=self.directory)
        if lock:
            kernel.take_lock(fd)
        while data:
            data = data[os.write(fd, data) :]
        os.fsync(fd)
        return fd

    def start(self) -> None:
        """Start the command. From here on nothing may fail: `identity` stands, so only `exit` can say what happened."""
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
        fault("launcher.before_exec")
        self.began = time.monotonic()
        try:
            self.command = cgroup.fork_into(self.cgroup) if self.cgroup else os.fork()
        except OSError as error:
            self.command, self.status = 0, 126 << 8
            self.outputs[1].add(f"onward: cannot start a process: {error.strerror}\n".encode())
        if self.command == 0 and self.status is None:
            command.become(self.spec, self.pid, self.outputs[0].write_end, self.outputs[1].write_end)
        self.finished = self.began
        for output in self.outputs:
            output.started()

    def watch(self) -> None:
        """Return when the command and all that came of it are gone, and what they printed was read."""
        while not self.is_over(time.monotonic()):
            self.move(self.pause(time.monotonic()))
        self.drain()
        if self.kill_at is not None or not all(output.at_end for output in self.outputs):
            # Who still holds a pipe has left the tree (handed to a server of its own, say): only markers find it.
            self.signal_tree(_signal.SIGKILL)
        if self.cgroup:
            cgroup.remove(self.cgroup)

    def drain(self) -> None:
        """Take what is in the pipes now; an endless writer outside of the tree cannot hold this up."""
        stop = time.monotonic() + 1.0
        for output in self.outputs:
            while not output.at_end and self.try_take(output) and time.monotonic() < stop:
                pass

    def is_over(self, now: float) -> bool:
        alone = self.reap(now)
        if self.kill_at is None:
            self.look_for_reason(now, alone=alone)
        elif not alone and (self.insisted or now >= self.kill_at):
            self.insisted, self.kill_at = True, min(self.kill_at, now)
            self.signal_tree(_signal.SIGKILL)
        return alone or (self.kill_at is not None and now >= self.kill_at + GIVE_UP_S)

    def reap(self, now: float) -> bool:
        """Collect whoever has ended; True when no process of the tree is left."""
        try:
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == self.command:
                    self.status, self.finished = ended[1], now
        except ChildProcessError:
            return True
        return False

    def look_for_reason(self, now: float, *, alone: bool) -> None:
        """Begin to end the tree when there is a reason."""
        deadline = self.spec["deadline_s"]
        if self.status is not None:
            if self.asked and os.WIFSIGNALED(self.status):
                self.ended_by = self.asked  # a shutdown signals all processes: the command may be gone before we act
            if not alone:
                self.begin_to_end(now, LEFTOVER_GRACE_S, self.ended_by)
        elif self.asked:
            self.begin_to_end(now, ASKED_GRACE_S, self.asked)
        elif deadline is not None and now >= self.began + deadline:
            self.begin_to_end(now, self.spec["grace_s"], "deadline")
        elif self.is_orphan(now):
            self.begin_to_end(now, self.spec["grace_s"], "orphan_grace")

    def is_orphan(self, now: float) -> bool:
        """Say whether no daemon was there for the whole grace. The last look is this one, right before the end."""
        if now < self.next_ask:
            return False
        grace = self.spec["orphan_grace_s"]
        if kernel.daemon_is_there(self.spec["runs_lock"]):
            self.orphan_since = None
        elif self.orphan_since is None:
            self.orphan_since = now
        self.next_ask = now + min(max(grace / 20, 0.1), 5.0)
        return self.orphan_since is not None and now - self.orphan_since >= grace

    def begin_to_end(self, now: float, grace_s: float, by: str) -> None:
        self.ended_by = by
        self.kill_at = now + grace_s
        self.signal_tree(_signal.SIGTERM, _signal.SIGCONT)

    def signal_tree(self, *signals: int) -> None:
        found = kernel.process_tree(self.pid, self.markers)
        if self.cgroup and _signal.SIGKILL in signals:
            cgroup.kill(self.cgroup)  # whatever forks faster than it can be walked
        elif self.cgroup:
            found.update(kernel.identified(cgroup.members(self.cgroup)))
        for pid, ticks in found.items():
            kernel.signal_process(pid, ticks, *signals)

    def pause(self, now: float) -> float:
        """Return how long there is nothing to do unless somebody prints, ends or signals."""
        if self.kill_at is not None:
            return 0.05 if self.insisted else max(self.kill_at - now, 0.0)
        moments = [self.next_ask]
        if self.spec["deadline_s"] is not None:
            moments.append(self.began + self.spec["deadline_s"])
        return max(min(moments) - now, 0.0)

    def move(self, timeout_s: float) -> None:
        """Wait, then take what was printed."""
        now = time.monotonic()
        poll = select.poll()
        poll.register(self.wake, select.POLLIN)
        readable = {}
        for output in self.outputs:
            if output.stalled_until > now:
                timeout_s = min(timeout_s, output.stalled_until - now)
            elif not output.at_end:
                poll.register(output.pipe, select.POLLIN)
                readable[output.pipe] = output
        for fd, _ in poll.poll(min(timeout_s, 3600.0) * 1000 + 1):
            if fd == self.wake:
                os.read(self.wake, 512)
            else:
                self.try_take(readable[fd])

    def try_take(self, output: Output) -> bool:
        """Take a chunk; False when this pipe is at its end or empty, or its file does not take more for now."""
        try:
            output.add(b"")
            return output.take()
        except OSError:
            output.stalled_until = time.monotonic() + 0.2
            return False

    def record(self) -> None:
        """Write `exit`, as often as it takes: without it the call would count as lost."""
        delay_s = 0.05
        while True:
            try:
                return self.write_exit()
            except OSError as error:
                if error.errno == ENOENT:  # the whole directory was removed: there is nobody left to tell
                    return None
            time.sleep(delay_s)
            delay_s = min(delay_s * 2, 5.0)

    def write_exit(self) -> None:
        fault("launcher.before_exit")
        self.drain()  # again each time: what the disk did not take was left in the pipe
        for output in self.outputs:
            output.finish()
        status = self.status if self.status is not None else int(_signal.SIGKILL)
        text = (
            f'{{"protocol": {PROTOCOL}, "code": {os.waitstatus_to_exitcode(status)}, "ended_by": "{self.ended_by}", '
            f'"duration_s": {self.finished - self.began:.3f}, '
            f'"stdout": {self.outputs[0].report()}, "stderr": {self.outputs[1].report()}}}\n'
        )
        temp = f"exit.{self.pid}.tmp"
        os.close(self.write_durably(temp, text.encode()))
        fault("launcher.exit_written")
        os.rename(temp, "exit", src_dir_fd=self.directory, dst_dir_fd=self.directory)
        os.fsync(self.directory)
        fault("launcher.after_exit")
