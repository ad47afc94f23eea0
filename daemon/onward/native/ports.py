"""What the native loop needs: one run's journal, and the world."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Protocol

from onward.core.records import Record
from onward.core.state import RunState
from onward.ports.clock import Clock
from onward.ports.model import Model
from onward.ports.process import ProcessSpawner
from onward.ports.store import Decide, RunStore
from onward.ports.tool import Tool


class Recorder(Protocol):
    """One run's journal, as the loop needs it: a full disk makes it wait, not fail."""

    @property
    def state(self) -> RunState: ...

    async def append(self, *records: Record) -> None:
        """Write and fold records; they become durable within 50 ms.

        Raises:
            StoreError: The journal is broken; open the run again.
        """
        ...

    async def append_durably(self, *records: Record) -> None:
        """Write and fold records, and wait until they are durable. Raises as `append`."""
        ...

    async def write(self, decide: Decide) -> None:
        """Write what `decide` returns, as `append`; it is asked at the moment of writing, again after every wait.

        Raises:
            StoreError: As `append`; and whatever `decide` raises.
        """
        ...

    async def act(self, decide: Decide) -> None:
        """Write durably what `decide` returns. Raises as `write`."""
        ...

    async def keep(self, data: bytes) -> str:
        """Keep a large output durably; returns its sha-256. Raises as `append`."""
        ...

    async def make_call_dir(self, call_id: str) -> Path:
        """Make the directory for the evidence of a call. Raises as `append`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPorts:
    """What a run needs from the world."""

    store: RunStore
    load_model: Callable[[str], Awaitable[Model]]
    """Gives the model of a name; a ModelFailure counts like one of a request."""
    tools: Mapping[str, Tool]
    spawner: ProcessSpawner
    clock: Clock
    random: Random
    idle: Callable[[], AbstractAsyncContextManager[None]]
    """Entered while the run waits for a timer, so that another one can work."""
    on_delta: Callable[[str], None] = lambda _text: None
    """Is told the pieces of an answer as they come, for those who watch."""
    orphan_grace_s: float = 600.0
    may_expire: Callable[[], bool] = lambda: True
    """Whether questions expire already: not while people could not answer them for a while."""
