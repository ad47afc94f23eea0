"""The service of one user: installed without root, under that user's own manager."""

import json

import pytest

from tests.crash.journals import read_journal
from tests.e2e.instances import shell
from tests.support import until
from tests.systemd.service import Service

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

UID = "4711"
HOUSE = "/var/lib/somebody"
ONWARD = "/opt/onward/1/bin/onward"
WAITS = "until [ -e go ]; do sleep 0.5; done; touch done"


def as_user(up: Service, *words: str, check: bool = True) -> str:
    """Run a command as the user; what it said on stderr."""
    become = ("setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups", "env", "-i")
    environment = (f"XDG_RUNTIME_DIR=/run/user/{UID}", f"HOME={HOUSE}", "PATH=/usr/bin:/bin")
    done = up.machine.run(*become, *environment, *words, check=False)
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def manager(up: Service) -> Service:
    """A machine with a user whose manager runs."""
    run = up.machine.run
    run("systemctl", "stop", "onward.service")
    run("useradd", "-u", UID, "-U", "-m", "-d", HOUSE, "somebody")
    run("mkdir", "-p", f"{HOUSE}/.config/systemd/user")
    run("chown", "-R", "somebody:", HOUSE)
    run("systemctl", "start", f"user@{UID}.service")
    return up


def test_a_user_installs_and_removes_a_service_of_their_own(manager: Service) -> None:
    up, root = manager, manager.machine.root
    house = root / HOUSE.lstrip("/")
    told = as_user(up, ONWARD, "service", "install", "--user")
    assert "WARNING: a logout ends all" in told
    assert f"wrote {HOUSE}/.config/systemd/user/onward.service" in told
    assert (root / f"run/user/{UID}/onward/onward.sock").is_socket()
    (root / "var/lib/systemd/linger").mkdir(exist_ok=True)
    (root / "var/lib/systemd/linger/somebody").touch()
    assert "WARNING" not in as_user(up, ONWARD, "service", "install", "--user")

    (house / "script.json").write_text(json.dumps({"turns": [shell(WAITS)]}))
    run_id = as_user(up, ONWARD, "run", "-d", "-w", HOUSE, "--model", f"scripted/{HOUSE}/script.json", "x").split()[-1]
    until((house / f".local/state/onward/runs/{run_id}/calls/t1c1/identity").exists, 30)
    as_user(up, "systemctl", "--user", "restart", "onward.service")
    (house / "go").touch()
    as_user(up, ONWARD, "wait", run_id)
    journal = read_journal(house / ".local/state/onward/runs" / run_id)
    assert [done["outcome"] for done in journal.of("ToolCallDone")] == ["ok"]
    assert journal.of("RunRevived") == []

    as_user(up, ONWARD, "service", "uninstall", "--user")
    places = (f"{HOUSE}/.config", f"{HOUSE}/.local/share")
    assert up.machine.run("find", *places, "-name", "*onward*", check=False).stdout == ""
