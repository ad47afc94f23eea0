import itertools
import re
import tomllib
from pathlib import Path

import pytest
from pydantic import BaseModel

from onward.config.places import Places, find_places, shipped
from onward.config.settings import Settings, load_settings, setting_names
from onward.errors import BadConfiguration


@pytest.fixture
def places(tmp_path: Path, no_environment: None) -> Places:
    """Two configuration directories: a person's and the machine's."""
    for name in ("user", "system"):
        (tmp_path / name).mkdir()
    return Places(
        config_dirs=(tmp_path / "user", tmp_path / "system"), runs_dir=tmp_path / "runs", socket=tmp_path / "o.sock"
    )


def write(places: Places, user: str = "", system: str = "") -> None:
    for file, text in zip(places.settings_files, (user, system), strict=True):
        file.write_text(text)


def refusal(places: Places, **flags: object) -> str:
    with pytest.raises(BadConfiguration) as caught:
        load_settings(places, flags)
    return str(caught.value)


def test_without_files_everything_has_its_default(places: Places) -> None:
    assert load_settings(places) == Settings()


def test_the_shipped_file_shows_every_setting_with_its_default() -> None:
    text = (shipped("config") / "onward.toml").read_text()
    tables = tomllib.loads(text)
    assert Settings.model_validate(tables) == Settings()
    assert tables.pop("prices") == {}
    # Of the tables that a person names, the first shows everything; the others only what is different.
    shown = tables.pop("providers")["anthropic"]
    check_table(shown, Settings().providers["anthropic"])
    assert set(tables) | {"providers", "prices"} == set(setting_names())
    notify = tables["notify"]
    assert notify.pop("webhooks", {}) == {}
    notify["allow_private"], notify["hook"] = tuple(notify["allow_private"]), tuple(notify["hook"])
    notify["webhooks"] = {}
    for section, table in tables.items():
        check_table(table, getattr(Settings(), section))


def check_table(table: dict[str, object], defaults: BaseModel) -> None:
    assert tuple(table) == tuple(type(defaults).model_fields)
    for key, value in table.items():
        default = getattr(defaults, key)
        # A default that depends on the machine or the model is shown as "" or 0, and a float as a float.
        assert (value or None if default is None else value) == default
        assert value in ("", 0) if default is None else type(value) is type(default)


def test_the_shipped_comments_name_every_setting_of_a_price() -> None:
    comment = (shipped("config") / "onward.toml").read_text().partition("# Prices in US dollars")[2]
    assert [name for name in setting_names()["prices"] if name not in comment] == []


def test_each_setting_in_the_shipped_file_has_its_line_of_explanation() -> None:
    lines = (shipped("config") / "onward.toml").read_text().splitlines()
    bare = [line for before, line in itertools.pairwise(lines) if "=" in line and not before.startswith("# ")]
    assert [line for line in bare if not line.startswith("#")] == []


def test_flag_before_environment_before_user_before_system(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    write(
        places,
        user="[daemon]\nmax_active_runs = 2\nentry_rate = 2\nlock_wait_s = 2",
        system="[daemon]\nmax_active_runs = 1\nentry_rate = 1\nlock_wait_s = 1\norphan_grace_s = 1",
    )
    monkeypatch.setenv("ONWARD_DAEMON__MAX_ACTIVE_RUNS", "3")
    monkeypatch.setenv("ONWARD_DAEMON__ENTRY_RATE", "3")
    daemon = load_settings(places, {"daemon.max_active_runs": 4, "daemon.lock_wait_s": None}).daemon
    assert (daemon.max_active_runs, daemon.entry_rate, daemon.lock_wait_s, daemon.orphan_grace_s) == (4, 3, 2, 1)


def test_the_variables_that_are_no_settings_are_left_alone(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    names = "HOME FAULT FAULT_TRACE LAUNCHER_FAULT INSTANCE RUN_ID CALL_ID SWEEP_SEED"
    for name in names.split():
        monkeypatch.setenv(f"ONWARD_{name}", "x")
    assert load_settings(places) == Settings()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[deamon]\nsocket = ''", "onward.toml:1: unknown section 'deamon'; did you mean 'daemon'?"),
        ("\n[daemon]\n\nmax_active_run = 3", "onward.toml:4: unknown key 'max_active_run'; did you mean 'max_active"),
        ("[daemon]\nlevel = 'info'", "onward.toml:2: unknown key 'level'; did you mean [log] level?"),
        ("[log]\nzzz = 1", "onward.toml:2: unknown key 'zzz'; known here: format, level"),
        (
            "max_active_runs = 3",
            "onward.toml:1: unknown key 'max_active_runs'; known here: daemon, log, metrics, notify, prices, providers",
        ),
        ("[daemon]\nmax_active_runs = 0", "onward.toml:2: daemon.max_active_runs: Input should be greater than or equ"),
        ("[daemon]\nruns_dir = 'runs'", "onward.toml:2: daemon.runs_dir: must be an absolute path (it is 'runs')"),
        ("[daemon]\nentry_rate = inf", "onward.toml:2: daemon.entry_rate: Input should be a finite number"),
        ("daemon = 3", "onward.toml:1: daemon: Input should be a valid dictionary"),
        ("[daemon]\nsocket = ", "onward.toml:2: not TOML: Invalid value"),
    ],
)
def test_a_mistake_in_a_file_is_said_with_its_line(text: str, said: str, places: Places) -> None:
    write(places, user=text)
    assert said in refusal(places)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("ONWARD_DAEMON__SOKET", "/x", "ONWARD_DAEMON__SOKET: no such setting; did you mean 'ONWARD_DAEMON__SOCKET'?"),
        ("ONWARD_DAEMON_SOCKET", "/x", "ONWARD_DAEMON_SOCKET: no such setting; did you mean 'ONWARD_DAEMON__SOCKET'?"),
        ("ONWARD_LOG__LEVEL", "loud", "ONWARD_LOG__LEVEL: Input should be 'debug', 'info', 'warning' or 'error'"),
    ],
)
def test_a_mistake_in_the_environment_is_said_with_its_name(
    name: str, value: str, said: str, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    assert said in refusal(places)


def test_a_mistake_in_a_flag_is_said_with_its_name(places: Places) -> None:
    assert refusal(places, **{"daemon.entry_rate": -1}).startswith(
        "--entry-rate: Input should be greater than or equal to 0.001"
    )


def test_all_mistakes_are_said_at_once(places: Places) -> None:
    write(places, user="[log]\nlevel = 'x'\nformat = 'y'", system="[nope]\n")
    assert re.findall(r"\w+/onward.toml:\d", refusal(places)) == [
        "system/onward.toml:1",
        "user/onward.toml:2",
        "user/onward.toml:3",
    ]


def test_a_file_that_others_can_write_is_refused(places: Places) -> None:
    write(places)
    places.settings_files[0].chmod(0o664)
    assert "can be written by others and is refused: chmod go-w" in refusal(places)


def test_settings_move_the_places(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    write(places, user="[daemon]\nruns_dir = '/srv/runs'\nsocket = ''")
    changed = load_settings(places).apply(places)
    assert (changed.runs_dir, changed.socket) == (Path("/srv/runs"), places.socket)
    monkeypatch.setenv("HOME", "/home/somebody")
    write(places, user="[daemon]\nruns_dir = '~/runs'")
    assert load_settings(places).apply(places).runs_dir == Path("/home/somebody/runs")


def test_onward_socket_goes_before_files_but_not_before_a_flag(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    write(places, user="[daemon]\nsocket = '/file.sock'")
    monkeypatch.setenv("ONWARD_SOCKET", "/env.sock")
    assert load_settings(places).apply(find_places()).socket == Path("/env.sock")
    assert load_settings(places, {"daemon.socket": "/flag.sock"}).daemon.socket == Path("/flag.sock")


def test_a_socket_path_that_is_too_long_is_refused_when_it_is_applied(places: Places) -> None:
    with pytest.raises(BadConfiguration, match="at most 107"):
        load_settings(places, {"daemon.socket": "/" + "s" * 107}).apply(places)
