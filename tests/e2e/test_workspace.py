"""A workspace that was mounted is waited for: what stands beneath is another directory."""

import os
import subprocess
from collections.abc import Callable, Iterator

import pytest

from tests.e2e.instances import Instance, shell

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")


def mount(instance: Instance) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(instance.workspace)], check=True)


@pytest.fixture
def instance(make: Callable[..., Instance]) -> Iterator[Instance]:
    made = make()
    mount(made)
    yield made
    made.end()
    subprocess.run(["umount", "-lq", str(made.workspace)], check=False)


def test_a_run_whose_workspace_is_not_mounted_writes_nothing_into_what_is_beneath(instance: Instance) -> None:
    run_id = instance.start().run(shell("echo x >> file", delay_s=1), {"text": "done"})
    instance.kill()
    subprocess.run(["umount", "-l", str(instance.workspace)], check=True)
    instance.start()
    parked = instance.until_status(run_id, "parked")
    assert (parked["needs"], "is not mounted" in parked["error"]) == ("workspace", True)
    assert list(instance.workspace.iterdir()) == []
    mount(instance)
    assert instance.post(f"/v1/runs/{run_id}/resume", {}).status == 200
    assert instance.until_status(run_id, "completed")["result"] == "done"
    assert (instance.workspace / "file").read_text() == "x\n"
