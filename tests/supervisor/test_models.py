"""Which model a run gets, and what is said where there is none."""

import socket
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from onward.config.places import Places
from onward.config.providers import BUILT_IN, PriceSettings, ProviderSettings
from onward.config.settings import Settings
from onward.core.masking import KnownSecrets
from onward.errors import BadRequest, NotFound
from onward.native.models.remote import RemoteModel
from onward.ports.model import FailureClass, ModelFailure
from onward.supervisor import usable
from onward.supervisor.models import ConfiguredModels
from onward.testing.clocks import FakeClock
from tests.fake_server.answers import Answer, in_order, text
from tests.fake_server.server import KEY, serving
from tests.native.models.asking import request

ANTHROPIC, OPENAI = {"ANTHROPIC_API_KEY": KEY}, {"OPENAI_API_KEY": KEY}
LOCAL = ProviderSettings(kind="openai", base_url="http://127.0.0.1:9/v1", model="tiny")


def models(tmp_path: Path, environ: dict[str, str], **settings: object) -> ConfiguredModels:
    places = Places(config_dirs=(tmp_path,), runs_dir=tmp_path / "runs", socket=tmp_path / "o.sock")
    providers = {**BUILT_IN, **settings.pop("providers", {})}  # type: ignore[dict-item]  # given by the tests below
    return ConfiguredModels(places, FakeClock(), Settings.model_validate({"providers": providers, **settings}), environ)


@pytest.mark.parametrize(
    ("environ", "providers", "expected"),
    [
        (ANTHROPIC, {}, "anthropic/claude-sonnet-5-5"),
        (OPENAI, {}, "openai/gpt-6-sol"),
        ({**ANTHROPIC, **OPENAI}, {}, "anthropic/claude-sonnet-5-5"),
        ({}, {"local": LOCAL}, "local/tiny"),
        (OPENAI, {"openai": ProviderSettings(api_key_env="OPENAI_API_KEY", model="gpt-5.5")}, "openai/gpt-5.5"),
    ],
)
def test_without_a_name_the_first_usable_is_taken(
    environ: dict[str, str], providers: dict[str, ProviderSettings], expected: str, tmp_path: Path
) -> None:
    assert models(tmp_path, environ, providers=providers).check(None) == expected


def test_where_nothing_is_usable_one_screen_says_what_would_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "codex").write_text("#!/bin/sh\n")
    (tmp_path / "codex").chmod(0o755)
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setattr(usable, "OLLAMA", server.getsockname())
        with pytest.raises(BadRequest) as caught:
            models(tmp_path, {"PATH": str(tmp_path)}).check(None)
        said = str(caught.value)
        assert f"one listens on 127.0.0.1:{server.getsockname()[1]}" in said
    for part in ("ANTHROPIC_API_KEY or OPENAI_API_KEY", 'kind = "openai"', "(found: codex)", "--model scripted/FILE"):
        assert part in said
    assert len(said.splitlines()) < 20
    with pytest.raises(BadRequest, match="none listens on"):
        models(tmp_path, {"PATH": str(tmp_path)}).check(None)


def test_a_named_model_must_be_one_of_a_known_provider_with_its_key(tmp_path: Path) -> None:
    known = models(tmp_path, ANTHROPIC)
    assert known.check("anthropic/claude-next") == "anthropic/claude-next"
    with pytest.raises(BadRequest, match="the providers here are anthropic, openai, scripted"):
        known.check("antropic/claude")
    with pytest.raises(BadRequest, match="the provider 'openai' has no key: set OPENAI_API_KEY"):
        known.check("openai/gpt-5")
    with pytest.raises(NotFound):
        known.check("scripted/nothing.json")


def test_a_fallback_needs_a_known_provider_but_not_yet_its_key(tmp_path: Path) -> None:
    known = models(tmp_path, ANTHROPIC)
    assert known.check(None, ("openai/gpt-5", "scripted/x.json")) == "anthropic/claude-sonnet-5-5"
    with pytest.raises(BadRequest, match="'opnai/gpt-5' cannot be used"):
        known.check(None, ("opnai/gpt-5",))


async def test_a_key_that_is_missing_when_a_run_goes_on_is_a_failure_like_a_wrong_one(tmp_path: Path) -> None:
    environ = dict(OPENAI)
    known = models(tmp_path, environ)
    first = await known.load("openai/gpt-5")
    assert await known.load("openai/gpt-5") is first
    del environ["OPENAI_API_KEY"]
    with pytest.raises(ModelFailure) as caught:
        await known.load("openai/gpt-5")
    assert caught.value.failure is FailureClass.AUTH
    environ["OPENAI_API_KEY"] = "sk-another"
    assert await known.load("openai/gpt-5") is not first
    with pytest.raises(ModelFailure) as caught:
        await known.load("gone/gpt-5")
    assert caught.value.failure is FailureClass.MODEL_MISSING


async def test_what_is_known_of_a_model_and_what_settings_say_instead(tmp_path: Path) -> None:
    prices = {"work/claude-haiku-4-5": PriceSettings(input=7.0, output=9.0, window_tokens=5)}
    work = ProviderSettings(kind="anthropic", api_key_env="ANTHROPIC_API_KEY", window_tokens=1234)
    known = models(tmp_path, ANTHROPIC, providers={"work": work}, prices=prices)
    dated = await known.load("anthropic/claude-haiku-4-5-20251001")
    assert dated.window_tokens == 200_000
    assert (await known.load("work/claude-sonnet-5")).window_tokens == 1234
    own = await known.load("work/claude-haiku-4-5")
    assert isinstance(own, RemoteModel)
    assert own._card.price is not None
    assert own._card.price.input == 7.0


async def test_an_unknown_price_is_said_once_and_no_key_is_logged(tmp_path: Path) -> None:
    with capture_logs() as logged:
        known = models(tmp_path, ANTHROPIC)
        for _ in range(3):
            await known.load("anthropic/claude-unheard-of")
    assert [entry["event"] for entry in logged] == ["price unknown, counted as free"]
    assert KEY not in str(logged)


async def test_two_models_of_a_provider_share_its_client(tmp_path: Path) -> None:
    with serving(in_order(Answer(blocks=[text("x")]))) as fake:
        known = models(tmp_path, {**ANTHROPIC, "ANTHROPIC_BASE_URL": fake.url})
        for name in ("anthropic/claude-sonnet-5", "anthropic/claude-haiku-5-5"):
            turn = await (await known.load(name)).infer(request())
            assert turn.cost_usd > 0
        assert len(known._connections) == 1
        await known.aclose()


async def test_a_key_from_a_file_is_masked_wherever_it_would_be_written(tmp_path: Path) -> None:
    """No variable holds it, so nothing else could know it for a secret."""
    key_file = tmp_path / "key"
    key_file.write_text("sk-from-a-file-123\n")
    key_file.chmod(0o600)
    secrets = KnownSecrets()
    provider = ProviderSettings(kind="openai", base_url="http://127.0.0.1:9/v1", api_key_file=key_file)
    settings = Settings(providers={"local": provider})
    places = Places(config_dirs=(tmp_path,), runs_dir=tmp_path / "runs", socket=tmp_path / "o.sock")

    await ConfiguredModels(places, FakeClock(), settings, {}, secrets).load("local/m")

    assert secrets.mask(b'{"text":"it is sk-from-a-file-123"}') == b'{"text":"it is [secret local_key]"}'
