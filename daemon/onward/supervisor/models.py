"""From the name of a model to the model."""

from functools import partial
from typing import Protocol

import anyio.to_thread

from onward.config.places import Places
from onward.errors import BadRequest, OnwardError
from onward.native.models.scripted import ScriptedModel
from onward.ports.clock import Clock
from onward.ports.model import FailureClass, Model, ModelFailure


class Models(Protocol):
    """Finds models by name."""

    def check(self, name: str | None) -> str:
        """Return the name in the form in which a run's journal pins it.

        Raises:
            BadRequest: No such model can be used; the message says what would do.
            NotFound: What it names is not there.
        """
        ...

    async def load(self, name: str) -> Model:
        """Return the model.

        Raises:
            ModelFailure: It cannot be used now (a key or file is missing): treated like a failed request.
        """
        ...


class ConfiguredModels:
    """The models of this installation: `scripted/PATH`."""

    def __init__(self, places: Places, clock: Clock) -> None:
        self._places = places
        self._clock = clock

    def check(self, name: str | None) -> str:
        provider, _, path = (name or "").partition("/")
        if provider != "scripted" or not path:
            named = f"the model {name!r} cannot be used" if name else "the agent names no model"
            raise BadRequest(f"{named}: this version has only the scripted model; start with --model scripted/FILE")
        return f"scripted/{self._places.find_script(path)}"

    async def load(self, name: str) -> Model:
        try:
            path = self._places.find_script(name.partition("/")[2])
            return await anyio.to_thread.run_sync(partial(ScriptedModel, path, self._clock))
        except OnwardError as error:
            raise ModelFailure(FailureClass.MODEL_MISSING, str(error)) from error
