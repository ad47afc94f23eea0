"""The settings of a running daemon: a good save is used, a bad one changes nothing, whatever tells of it."""

import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from onward.config.places import Places
from onward.config.settings import Settings, load_settings
from onward.supervisor import reload
from onward.supervisor.configuration import ConfigurationFiles
from onward.supervisor.reload import watch_configuration, watchable
from tests.support import eventually

pytestmark = pytest.mark.usefixtures("no_environment")


class Kept:
    """A configuration in `top/config`, and what was used of it."""

    def __init__(self, top: Path) -> None:
        self.file = top / "config" / "onward.toml"
        places = Places(config_dirs=(top / "config",), runs_dir=top / "runs", socket=top / "s.sock")
        self.used: list[int] = []
        self.files = ConfigurationFiles(places, load_settings(places), self._use)

    def _use(self, settings: Settings) -> None:
        self.used.append(settings.daemon.max_active_runs)

    def write(self, text: str) -> None:
        self.file.parent.mkdir(mode=0o700, exist_ok=True)
        self.file.write_text(text)


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


async def test_a_good_reading_is_used_and_a_bad_one_kept_away(kept: Kept) -> None:
    kept.write("[daemon]\nmax_active_runs = 3\n")
    await kept.files.reload()
    assert (kept.used, kept.files.to_json()["ok"]) == ([3], True)
    kept.write("[daemon]\nmax_active_runs = 0\n")
    await kept.files.reload()
    told = kept.files.to_json()
    assert (kept.used, told["ok"], len(told["problems"])) == ([3], False, 1)
    assert f"{kept.file}:2" in told["problems"][0]


async def test_a_wrong_agent_is_said_and_the_settings_are_used(kept: Kept) -> None:
    kept.write("[daemon]\nmax_active_runs = 3\n")
    agents = kept.file.parent / "agents"
    agents.mkdir(mode=0o700)
    (agents / "mine.toml").write_text("tools = 3")
    await kept.files.reload()
    assert (kept.used, kept.files.to_json()["ok"]) == ([3], False)


async def test_what_needs_a_restart_is_named_as_long_as_it_differs(kept: Kept) -> None:
    for text, waits in (
        ("[daemon]\nentry_rate = 3\n[log]\nlevel = 'debug'\nformat = 'json'\n", ["daemon.entry_rate", "log.format"]),
        ("[providers.mine]\nkind = 'openai'\n", []),
        ("", []),
    ):
        kept.write(text)
        await kept.files.reload()
        assert kept.files.to_json()["restart_needed"] == waits


@pytest.fixture
async def watched(kept: Kept) -> AsyncIterator[Kept]:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch_configuration, kept.files, 0.02)
        yield kept
        tasks.cancel_scope.cancel()


async def test_every_save_is_noticed_also_of_what_was_not_there(watched: Kept) -> None:
    for number in (3, 4, 5):
        await anyio.to_thread.run_sync(watched.write, f"[daemon]\nmax_active_runs = {number}\n")
        await eventually(lambda number=number: watched.used[-1:] == [number])  # type: ignore[misc]  # bound now
    new = watched.file.with_suffix(".new")
    new.write_text("[daemon]\nmax_active_runs = 6\n")
    new.rename(watched.file)  # as editors save
    await eventually(lambda: watched.used[-1:] == [6])
    (watched.file.parent / "agents").mkdir(mode=0o700)
    (watched.file.parent / "agents" / "bad.toml").write_text("tools = 3")
    await eventually(lambda: not watched.files.to_json()["ok"])
    watched.file.unlink()
    await eventually(lambda: watched.used[-1:] == [50])


async def test_what_cannot_be_watched_is_polled(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: Any, **__: Any) -> Callable[[], None]:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(reload, "awatch", refuse)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch_configuration, kept.files, 0.02)
        for number in (3, 4):
            await anyio.to_thread.run_sync(kept.write, f"[daemon]\nmax_active_runs = {number}\n")
            await eventually(lambda number=number: kept.used[-1:] == [number])  # type: ignore[misc]  # bound now
        tasks.cancel_scope.cancel()
    assert capsys.readouterr().out.count("configuration is polled") == 1


LIMITED = """
import anyio, sys
from pathlib import Path
for name in ("max_inotify_instances", "max_inotify_watches"):
    Path("/proc/sys/user", name).write_text(sys.argv[2])
from tests.supervisor.test_configuration import Kept, eventually, watch_configuration
async def main() -> None:
    kept = Kept(Path(sys.argv[1]))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch_configuration, kept.files, 0.02)
        for number in (3, 4, 5):
            kept.write(f"[daemon]\\nmax_active_runs = {number}\\n")
            await eventually(lambda: kept.used[-1:] == [number])
        tasks.cancel_scope.cancel()
anyio.run(main)
"""


@pytest.mark.parametrize("limit", ["0", "64"])
def test_under_the_kernels_limits_it_is_polled_with_one_warning(tmp_path: Path, limit: str) -> None:
    own_limits = ["unshare", "--user", "--map-root-user"]
    if subprocess.run(
        [*own_limits, "sh", "-c", "echo 1 > /proc/sys/user/max_inotify_watches"], capture_output=True
    ).returncode:
        pytest.skip("this machine has no user namespaces")
    argv = [*own_limits, sys.executable, "-c", LIMITED, str(tmp_path), limit]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    assert (done.stdout + done.stderr).count("configuration is polled") == (1 if limit == "0" else 0)


def test_a_missing_directory_is_waited_for_in_the_nearest_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    wanted = [tmp_path / "a", tmp_path / "a" / "agents", tmp_path / "b" / "c"]
    assert watchable(wanted) == [tmp_path, tmp_path / "a"]
