import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import until
from tests.systemd import service as installed
from tests.systemd.machine import Machine, why_not
from tests.systemd.service import ROOT, Service, add_boot_id


@pytest.fixture(scope="session")
def opt() -> Iterator[Path]:
    """What becomes /opt of the machines: the wheel of this checkout, installed."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    if installed.interpreter() is None:
        pytest.skip("there is no Python of this version outside of home directories, for a service to run")
    made = Path(tempfile.mkdtemp(prefix="onward-opt-"))
    made.chmod(0o755)
    try:
        installed.build(made)
        yield made
    finally:
        shutil.rmtree(made)


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """What becomes /etc/systemd/system: the shipped units."""
    made = tmp_path / "units"
    made.mkdir()
    for name in ("onward.service", "onward.socket"):
        shutil.copy(ROOT / "systemd" / name, made)
    add_boot_id(made)
    return made


@pytest.fixture
def machine(tmp_path: Path, units: Path, opt: Path) -> Iterator[Machine]:
    """A machine that is not booted yet, at whose boot the service starts."""
    made = Machine(state=tmp_path / "state", units=units, opt=opt, enable=("onward.service",))
    yield made
    made.close()


@pytest.fixture
def up(machine: Machine) -> Service:
    """The service of a booted machine."""
    machine.boot()
    service = Service(machine)
    until(service.serves, 60)
    service.make_workspace("shared")
    return service
