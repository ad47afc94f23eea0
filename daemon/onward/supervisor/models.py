"""From the name of a model to the model."""

import os
import re
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Protocol

import anyio.to_thread
import structlog

from onward.config.places import Places
from onward.config.providers import (
    NoKey,
    PriceSettings,
    Provider,
    default_model,
    known_models,
    resolve_provider,
)
from onward.config.settings import Settings
from onward.core.masking import KnownSecrets
from onward.errors import BadConfiguration, BadRequest, OnwardError
from onward.native.models.anthropic import AnthropicDialect
from onward.native.models.openai import OpenAIDialect
from onward.native.models.prices import Card, Price
from onward.native.models.remote import Connection, Dialect, Endpoint, RemoteModel
from onward.native.models.scripted import ScriptedModel
from onward.ports.clock import Clock
from onward.ports.model import FailureClass, Model, ModelFailure
from onward.supervisor.usable import what_would_do

log = structlog.get_logger()

SCRIPTED = "scripted"
_DATE = re.compile(r"-20\d{2}-?\d{2}-?\d{2}$")
DIALECTS: Mapping[str, type[Dialect]] = {"anthropic": AnthropicDialect, "openai": OpenAIDialect}


class Models(Protocol):
    """Finds models by name."""

    def check(self, name: str | None, fallback: Sequence[str] = ()) -> str:
        """Return the name in the form in which a run's journal pins it. May read files; call it in a thread.

        Args:
            name: `PROVIDER/MODEL`; None: the first that is usable.
            fallback: What the definition names besides; their providers must be known, their keys can be missing.

        Raises:
            BadRequest: No such model can be used; the message says what would do.
            NotFound: What it names is not there.
        """
        ...

    def configure(self, settings: Settings) -> None:
        """Use other settings from here on; what was loaded before goes on as it is."""
        ...

    async def load(self, name: str) -> Model:
        """Return the model. Cheap where it was loaded before.

        Raises:
            ModelFailure: It cannot be used now (a key or file is missing): treated like a failed request.
        """
        ...


class ConfiguredModels:
    """The models of this installation: those of its providers, and `scripted/PATH`."""

    def __init__(
        self,
        places: Places,
        clock: Clock,
        settings: Settings | None = None,
        environ: Mapping[str, str] = os.environ,
        secrets: KnownSecrets | None = None,
    ) -> None:
        """Keys that are found are told to `secrets`, so that they are masked in everything that is written."""
        self._places = places
        self._clock = clock
        self._settings = settings or Settings()
        self._environ = environ
        self._secrets = secrets or KnownSecrets()
        self._connections: dict[Endpoint, Connection] = {}
        self._models: dict[tuple[Endpoint, str], RemoteModel] = {}

    def check(self, name: str | None, fallback: Sequence[str] = ()) -> str:
        for other in fallback:
            self._check_known(other)
        chosen = name or self._first_usable()
        if chosen is None:
            raise BadRequest(what_would_do(self._settings.providers, self._environ))
        provider, path = self._check_known(chosen)
        if provider == SCRIPTED:
            return f"{SCRIPTED}/{self._places.find_script(path)}"
        try:
            self._resolve(provider)
        except (NoKey, BadConfiguration) as error:
            raise BadRequest(f"the model {chosen!r} cannot be used: {error}") from error
        return chosen

    async def load(self, name: str) -> Model:
        provider, _, model = name.partition("/")
        try:
            if provider == SCRIPTED:
                path = self._places.find_script(model)
                return await anyio.to_thread.run_sync(partial(ScriptedModel, path, self._clock))
            self._check_known(name)
            return self._remote(await anyio.to_thread.run_sync(self._resolve, provider), model)
        except NoKey as error:
            raise ModelFailure(FailureClass.AUTH, str(error)) from error
        except OnwardError as error:
            raise ModelFailure(FailureClass.MODEL_MISSING, str(error)) from error

    def configure(self, settings: Settings) -> None:
        self._settings = settings
        self._cards = known_models() | settings.prices
        self._models.clear()  # the connections stay, where the providers are the same

    async def aclose(self) -> None:
        """Close the connections to all providers."""
        for connection in self._connections.values():
            await connection.aclose()

    def _first_usable(self) -> str | None:
        for name in self._settings.providers:
            try:
                provider = self._resolve(name)
            except (NoKey, BadConfiguration):
                continue
            if model := default_model(provider.kind, provider.settings, provider.base_url):
                return f"{name}/{model}"
        return None

    def _check_known(self, name: str) -> tuple[str, str]:
        provider, _, model = name.partition("/")
        known = (*self._settings.providers, SCRIPTED)
        if provider not in known or not model:
            text = f"the model {name[:200]!r} cannot be used: it is named PROVIDER/MODEL, and the providers here are "
            raise BadRequest(f"{text}{', '.join(known)}")
        return provider, model

    @cached_property
    def _cards(self) -> dict[str, PriceSettings]:
        """What is known of models, by name. Read once, by the first that asks in a thread."""
        return known_models() | self._settings.prices

    def _resolve(self, provider: str) -> Provider:
        """Return a provider as it can be used now. Reads files; call it in a thread."""
        _ = self._cards
        resolved = resolve_provider(provider, self._settings.providers[provider], self._environ)
        if resolved.key is not None:
            self._secrets.add(f"{provider} key", resolved.key)
        return resolved

    def _remote(self, provider: Provider, name: str) -> RemoteModel:
        endpoint = _endpoint(provider)
        if (endpoint, name) not in self._models:
            if endpoint not in self._connections:
                self._connections[endpoint] = Connection(endpoint, DIALECTS[provider.kind](), self._clock)
            card = self._card(provider, name)
            self._models[endpoint, name] = RemoteModel(self._connections[endpoint], name, card)
        return self._models[endpoint, name]

    def _card(self, provider: Provider, name: str) -> Card:
        undated = _DATE.sub("", name)
        names = (f"{whose}/{model}" for model in (name, undated) for whose in (provider.name, provider.kind))
        known = next((self._cards[each] for each in names if each in self._cards), None)
        if known is None:
            remedy = f'say [prices."{provider.name}/{name}"] in onward.toml'
            log.warning("price unknown, counted as free", provider=provider.name, model=name, remedy=remedy)
        window = provider.settings.window_tokens or (known.window_tokens if known else None)
        return Card(
            price=_price(known) if known else None,
            window_tokens=window,
            max_output_tokens=known.max_output_tokens if known else None,
        )


def _endpoint(provider: Provider) -> Endpoint:
    settings = provider.settings
    return Endpoint(
        name=provider.name,
        base_url=provider.base_url,
        key=provider.key,
        concurrency=settings.concurrency,
        connect_s=settings.connect_s,
        inactivity_s=settings.inactivity_s,
        max_output_tokens=settings.max_output_tokens,
    )


def _price(known: PriceSettings) -> Price:
    return Price(**known.model_dump(exclude={"window_tokens", "max_output_tokens"}))
