"""A daemon starts with the last good settings where somebody has broken them."""

from pathlib import Path

import pytest

from onward.config.places import Places
from onward.config.settings import load_settings
from onward.errors import BadConfiguration
from onward.supervisor.last_good import NAME, keep, settings_to_start_with


@pytest.fixture
def places(tmp_path: Path) -> Places:
    (tmp_path / "config").mkdir()
    return Places(config_dirs=(tmp_path / "config",), runs_dir=tmp_path / "runs", socket=tmp_path / "onward.sock")


def write(places: Places, text: str) -> None:
    places.settings_files[0].write_text(text)


GOOD = '[daemon]\nmax_active_runs = 7\nruns_dir = "/elsewhere"\n[providers.local]\nkind = "openai"\n'


def test_good_settings_are_used_and_bad_ones_replaced_by_those(
    places: Places, capsys: pytest.CaptureFixture[str]
) -> None:
    write(places, GOOD)
    good = load_settings(places)
    keep(places, good)
    assert settings_to_start_with(places) == good
    write(places, "[daemon]\nmax_active_runs = lots\n")
    assert settings_to_start_with(places) == good
    said = capsys.readouterr().err
    assert ("onward.toml:2" in said, "last good settings" in said) == (True, True)


def test_without_known_good_ones_the_complaint_is_the_end(places: Places) -> None:
    write(places, "[daemon]\nmax_active_runs = lots\n")
    with pytest.raises(BadConfiguration, match=r"onward\.toml:2"):
        settings_to_start_with(places)


@pytest.mark.parametrize("harm", ["{", '{"daemon": {"max_active_runs": -1}}'])
def test_a_copy_that_is_no_good_itself_is_not_used(places: Places, harm: str) -> None:
    write(places, "[daemon]\nmax_active_runs = lots\n")
    (places.runs_dir.parent / NAME).write_text(harm)
    (places.runs_dir.parent / NAME).chmod(0o600)
    with pytest.raises(BadConfiguration):
        settings_to_start_with(places)


def test_a_copy_that_cannot_be_written_is_only_missed(places: Places) -> None:
    keep(Places(config_dirs=(), runs_dir=Path("/proc/none/runs"), socket=places.socket), load_settings(places))


def test_settings_that_cannot_be_written_down_are_only_missed(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path of the environment may be no text."""
    monkeypatch.setenv("ONWARD_DAEMON__RUNS_DIR", "/tmp/\udcff")
    keep(places, load_settings(places))
    assert not (places.runs_dir.parent / NAME).exists()
