"""Why a SIGTERM came decides what becomes of commands in flight."""

import subprocess
import sys

import pytest

from onward.supervisor.stopping import judge, own_unit

UNIT = "onward.service"

# Whoever asks why it is to stop waits for a thread, as for an answer of systemd; meanwhile it is told to stop again.
TOLD_TWICE = """
import asyncio, os, signal, threading
import anyio
from anyio import to_thread
from onward.supervisor.service_manager import ServiceManager
from onward.supervisor.signals import Signals

async def main():
    loop, threads = asyncio.get_running_loop(), to_thread.current_default_thread_limiter()
    now, passed_s, threads.total_tokens = loop.time, 0.0, 1
    loop.time = lambda: now() + passed_s
    answered, signals = threading.Event(), Signals(ServiceManager())
    async with anyio.create_task_group() as tasks:
        await tasks.start(signals.obey)
        tasks.start_soon(to_thread.run_sync, answered.wait)
        os.kill(os.getpid(), signal.SIGTERM)
        while not threads.statistics().tasks_waiting:
            await anyio.lowlevel.checkpoint()
        os.kill(os.getpid(), signal.SIGTERM)
        await anyio.wait_all_tasks_blocked()
        passed_s = 5.0
        answered.set()
        with signals.starting:
            await anyio.sleep_forever()
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()

anyio.run(main)
"""


@pytest.mark.parametrize(
    ("jobs", "leave_running"),
    [
        ("122 onward.service restart running\n", True),
        ("122 onward.service stop running\n", False),
        ("1 other.service stop running\n", True),
        ("No jobs running.\n", True),
        ("", True),
        ("122 onward.service stop running\n9 shutdown.target start waiting\n", False),
        ("122 onward.service restart running\n9 reboot.target start waiting\n", False),
        ("9 shutdown.target start waiting\n", False),
        (None, False),
    ],
)
def test_only_a_restart_or_a_signal_of_somebody_else_leaves_commands_running(
    jobs: str | None, leave_running: bool
) -> None:
    assert judge(UNIT, jobs).leave_running is leave_running


def test_every_decision_names_its_reason() -> None:
    told = [judge(UNIT, jobs).reason for jobs in (f"1 {UNIT} stop running", f"1 {UNIT} restart running", "", None)]
    assert len(set(told)) == len(told)


@pytest.mark.parametrize(
    ("cgroups", "unit"),
    [
        ("0::/system.slice/onward.service\n", ("onward.service", False)),
        ("0::/system.slice/onward.service/daemon\n", ("onward.service", False)),
        ("4:memory:/x.service\n1:name=systemd:/system.slice/onward.service\n0::/\n", ("onward.service", False)),
        ("0::/user.slice/user-7.slice/user@7.service/app.slice/onward.service/daemon\n", ("onward.service", True)),
        ("0::/user.slice/user-7.slice/session-1.scope\n", None),
        ("0::/\n", None),
    ],
)
def test_the_unit_is_the_one_in_whose_cgroup_the_daemon_is(cgroups: str, unit: tuple[str, bool] | None) -> None:
    assert own_unit(cgroups) == unit


def test_a_stop_that_is_told_twice_is_one_stop_however_long_the_reason_is_asked_for() -> None:
    """It counts when the signals came, not when the second one could be looked at."""
    assert subprocess.run([sys.executable, "-c", TOLD_TWICE], timeout=60).returncode == 0
