from pathlib import Path

import pytest

from onward.config.places import Places
from onward.config.providers import (
    BUILT_IN,
    KINDS,
    NoKey,
    ProviderSettings,
    default_model,
    known_models,
    resolve_provider,
)
from onward.config.settings import load_settings
from onward.errors import BadConfiguration

KEY = "sk-test-7Hq"
OPENAI = BUILT_IN["openai"]


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    (tmp_path / "user").mkdir()
    (tmp_path / "system").mkdir()
    return Places(
        config_dirs=(tmp_path / "user", tmp_path / "system"), runs_dir=tmp_path / "runs", socket=tmp_path / "o.sock"
    )


def refusal(places: Places, text: str) -> str:
    places.settings_files[0].write_text(text)
    with pytest.raises(BadConfiguration) as caught:
        load_settings(places)
    return str(caught.value).removeprefix(str(places.config_dirs[0]))


def settings(**members: object) -> ProviderSettings:
    return ProviderSettings.model_validate(members)


def test_a_table_adds_to_what_is_built_in_and_to_the_machine_s(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    places.settings_files[0].write_text("[providers.openai]\nconcurrency = 2\n[providers.mine]\nmodel = 'm'\n")
    places.settings_files[1].write_text("[providers.mine]\nkind = 'openai'\nbase_url = 'https://mine.example/v1'\n")
    monkeypatch.setenv("ONWARD_PROVIDERS__MINE__INACTIVITY_S", "7")
    known = load_settings(places).providers
    assert list(known) == ["anthropic", "openai", "mine"]
    assert (known["openai"].api_key_env, known["openai"].concurrency) == ("OPENAI_API_KEY", 2)
    assert (known["mine"].kind, known["mine"].model, known["mine"].inactivity_s) == ("openai", "m", 7)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "[providers.a]\napi_key = 'sk-1'",
            "/onward.toml:2: unknown key 'api_key'; a key does not belong into this file",
        ),
        ("[providers.a]\nbase_ulr = 'x'", "/onward.toml:2: unknown key 'base_ulr'; did you mean 'base_url'?"),
        ("[providers.A_b]\nkind = 'openai'", "/onward.toml:1: unknown provider 'A_b'; a name is 1 to 32 of a-z"),
        ("[providers.mine]\nmodel = 'x'", "[providers.mine] needs a kind"),
        ("[providers.a]\nbase_url = 'ftp://x'", "/onward.toml:2: providers.a.base_url: must be an http:// or https://"),
        ("[providers.a]\nbase_url = 'https://me:pw@x'", "/onward.toml:2: providers.a.base_url: must not hold cred"),
        ("[providers.a]\napi_key_file = 'key'", "/onward.toml:2: providers.a.api_key_file: must be an absolute path"),
        ("[prices.'a/b']\ninput = 1", "/onward.toml:1: prices.a/b.output: Field required"),
        ("[prices.'a/b']\ninput = 1\noutput = 1\ncached = 1", "/onward.toml:4: unknown key 'cached'; did you mean 'ca"),
    ],
)
def test_a_mistake_is_said_with_its_line_and_remedy(text: str, said: str, places: Places) -> None:
    assert refusal(places, text).startswith(said)


def test_a_key_in_the_wrong_place_is_not_repeated(places: Places) -> None:
    for name in ("api_key", "api_key_env"):
        assert KEY not in refusal(places, f"[providers.openai]\n{name} = '{KEY}'")


def test_the_key_comes_from_the_variable_or_from_a_file_that_goes_before(tmp_path: Path) -> None:
    environ = {"OPENAI_API_KEY": f" {KEY}\n"}
    assert resolve_provider("openai", OPENAI, environ).key == KEY
    file = tmp_path / "key"
    file.write_text("from-file\n")
    file.chmod(0o600)
    assert resolve_provider("openai", settings(api_key_file=str(file)), environ).key == "from-file"
    assert KEY not in repr(resolve_provider("openai", OPENAI, environ))


def test_a_missing_key_is_said_with_its_remedy(tmp_path: Path) -> None:
    with pytest.raises(NoKey, match="'openai' has no key: set OPENAI_API_KEY"):
        resolve_provider("openai", OPENAI, {})
    with pytest.raises(NoKey, match="key is not there"):
        resolve_provider("openai", settings(api_key_file=str(tmp_path / "key")), {"OPENAI_API_KEY": KEY})


@pytest.mark.parametrize(("mode", "said"), [(0o644, "others can read"), (0o660, "can be written by others")])
def test_a_key_file_of_the_wrong_mode_is_refused(mode: int, said: str, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(KEY)
    file.chmod(mode)
    with pytest.raises(BadConfiguration, match=said) as caught:
        resolve_provider("openai", settings(api_key_file=str(file)), {})
    assert KEY not in str(caught.value)


def test_a_server_on_this_machine_needs_no_encryption_and_no_key_where_none_is_named() -> None:
    for url in ("http://127.0.0.1:11434/v1", "http://localhost:8080/v1", "http://[::1]:1/v1"):
        assert resolve_provider("ollama", settings(kind="openai", base_url=url), {}).key is None
        with pytest.raises(NoKey, match=r'if http.* needs none, say api_key_env = ""'):
            resolve_provider("openai", OPENAI, {"OPENAI_BASE_URL": url})


def test_nothing_goes_unencrypted_to_another_machine_unless_that_is_allowed() -> None:
    url = "http://models.example/v1"
    for known, environ in ((settings(base_url=url), {}), (OPENAI, {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": KEY})):
        with pytest.raises(BadConfiguration, match="unencrypted: use https, or say allow_http = true"):
            resolve_provider("openai", known, environ)
    assert resolve_provider("openai", settings(base_url=url, allow_http=True), {}).base_url == url


def test_a_default_model_is_one_that_is_known() -> None:
    for kind in ("anthropic", "openai"):
        assert f"{kind}/{default_model(kind, settings(), None)}" in known_models()
    assert default_model("openai", settings(), "http://127.0.0.1:11434/v1") is None
    assert default_model("openai", settings(model="mine"), "http://127.0.0.1:11434/v1") == "mine"
    assert default_model("anthropic", settings(), "https://gateway.example") is not None


def test_what_is_shipped_is_plausible() -> None:
    for name, card in known_models().items():
        assert 0 < card.input < card.output < 200, name
        assert card.cache_read is not None, name
        assert card.cache_read < card.input, name


def test_a_credential_of_the_service_manager_is_a_key(tmp_path: Path) -> None:
    """Whatever its mode looks like: access is given by a list there. One for another provider is none for this one."""
    (tmp_path / "anthropic-api-key").write_text("sk-credential\n")
    environ = {"CREDENTIALS_DIRECTORY": str(tmp_path), "OPENAI_API_KEY": "sk-variable"}
    keys = {name: resolve_provider(name, ProviderSettings(api_key_env="OPENAI_API_KEY"), environ).key for name in KINDS}
    assert keys == {"anthropic": "sk-credential", "openai": "sk-variable"}
