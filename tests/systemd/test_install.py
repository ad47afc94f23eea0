"""`onward service`: a version is installed, upgraded and rolled back under commands in flight, and removed whole."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import until
from tests.systemd import service as installed
from tests.systemd.machine import Machine
from tests.systemd.service import Service
from tests.systemd.world import RUNS, World

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

# What stands for a network: the packages that pip would fetch are there already.
OFFLINE = ("env", "PIP_NO_INDEX=1", "PIP_NO_DEPS=1")


@pytest.fixture
def bare(tmp_path: Path, opt: Path) -> Iterator[Service]:
    """A machine without Onward, but with its wheels in /opt/dist."""
    own = Path(tempfile.mkdtemp(prefix="onward-opt-", dir=opt.parent))
    own.chmod(0o755)
    installed.build_parts(own)
    (own / "onward.sysusers").write_text("")
    installed.build_next_wheel(own / "dist", tmp_path / "next")
    units = tmp_path / "units"
    installed.add_boot_id(units)
    (units / "onward.service.d/test.conf").write_text("[Service]\nEnvironment=PYTHONPATH=/opt/dependencies\n")
    machine = Machine(state=tmp_path / "state", units=units, opt=own)
    machine.boot()
    yield Service(machine)
    machine.close()
    shutil.rmtree(own)


def onward(bare: Service, *words: str, status: int = 0) -> str:
    """Run the command line as root, with whatever Onward there is."""
    path = "PYTHONPATH=/opt/unpacked:/opt/dependencies"
    done = bare.machine.run(*OFFLINE, path, str(installed.interpreter()), "-m", "onward", *words, check=False)
    assert done.returncode == status, done.stderr
    return done.stderr


def test_versions_come_and_go_under_commands_in_flight_and_nothing_is_left(bare: Service) -> None:
    dist = {("next" if "99" in wheel.name else "this"): f"/opt/dist/{wheel.name}" for wheel in bare_wheels(bare)}
    told = onward(bare, "service", "install", dist["this"])
    assert "wrote /etc/systemd/system/onward.service" in told
    until(bare.serves, 60)
    first = bare.get("/v1/daemon").body["version"]
    bare.make_workspace("shared")
    world = World(bare)
    world.start_all(RUNS // 2)
    world.until_in_first_batch()

    onward(bare, "service", "upgrade", dist["next"])
    until(bare.serves, 60)
    assert bare.get("/v1/daemon").body["version"] == "99.0"
    for number in range(RUNS // 2, RUNS):
        world.start_one(number)
    world.until_in_first_batch()

    bare.machine.run("ln", "-sfn", first, "/opt/onward/current")
    bare.systemctl("restart", "onward.service")
    until(bare.serves, 60)
    assert bare.get("/v1/daemon").body["version"] == first
    bare.machine.run("rm", "-r", "/opt/onward/99.0")  # what runs of it needs none of it any more
    world.let_go()
    world.until_ended()
    assert world.problems() == []
    assert [outcome for outcome in world.outcomes() if outcome.startswith("interrupted")] == []

    told = onward(bare, "service", "uninstall")
    assert "removed /opt/onward/" in told
    places = ("/opt/onward", "/etc/systemd/system", "/etc/sysusers.d", "/etc/tmpfiles.d")
    left = bare.machine.run("find", *places, "-path", "*onward*", "-type", "f", check=False).stdout.split()
    drop_ins = "/etc/systemd/system/onward.service.d"  # these two are not what `install` placed
    assert sorted(left) == [f"{drop_ins}/boot-id.conf", f"{drop_ins}/test.conf"]
    assert bare.runs.is_dir()


def test_a_version_that_does_not_start_gives_way_to_the_one_before_under_commands_in_flight(bare: Service) -> None:
    dist = {("next" if "99" in wheel.name else "this"): f"/opt/dist/{wheel.name}" for wheel in bare_wheels(bare)}
    onward(bare, "service", "install", dist["this"])
    until(bare.serves, 60)
    first = bare.get("/v1/daemon").body["version"]
    bare.make_workspace("shared")
    world = World(bare)
    world.start_all(2)
    world.until_in_first_batch()
    installed.break_wheel(next(wheel for wheel in bare_wheels(bare) if "99" in wheel.name))
    told = onward(bare, "service", "upgrade", dist["next"], status=1)
    assert f"{first} runs again, because 99.0 does not start" in told
    until(bare.serves, 60)
    assert bare.get("/v1/daemon").body["version"] == first
    assert f"{first} is what runs now" in onward(bare, "service", "install", dist["this"], status=2)
    world.let_go()
    world.until_ended()
    assert world.problems() == []
    assert [outcome for outcome in world.outcomes() if outcome.startswith("interrupted")] == []


def bare_wheels(bare: Service) -> list[Path]:
    return sorted((bare.machine.opt / "dist").glob("*.whl"))


def test_a_workspace_that_the_service_cannot_write_is_refused_with_the_remedy(up: Service) -> None:
    outside, home = "/srv/project", "/home/somebody/project"
    for path in (outside, home):
        up.machine.run("mkdir", "-p", path)
        up.machine.run("chown", "onward:", path)
        body = {"task": "x", "workspace": path, "model": up.script({"text": "done"})}
        refused = up.post("/v1/runs", body)
        assert (refused.status, "onward service allow-path" in refused.body["detail"]) == (422, True)

        up.machine.run("/opt/onward/current/bin/onward", "service", "allow-path", path)
        until(up.serves, 60)
        body["model"] = up.script({"calls": [{"name": "shell", "arguments": {"command": "echo x > file"}}]})
        run_id = up.post("/v1/runs", body).body["run_id"]
        up.until_status(run_id, "completed")
        assert up.machine.run("cat", f"{path}/file").stdout == "x\n"
