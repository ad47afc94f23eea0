"""Why a SIGTERM came decides what becomes of commands in flight."""

import pytest

from onward.supervisor.stopping import judge, own_unit

UNIT = "onward.service"


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
