"""What a transport tells the owner of a connection while it lasts."""

from collections import deque
from dataclasses import dataclass, field

import anyio

from onward.core.vocabulary import Needs

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
"""No message of a server may be larger; the one that is counts as an error of its call."""


@dataclass(slots=True)
class Link:
    """One connection: whether it still stands, whether it is doubted, and what is known of its end.

    Attributes:
        news: Set when `over` or `doubted` changed.
        over: It carries nothing any more.
        doubted: A call had no answer in time: is anybody there?
        reason: Why it ended, or could not be made.
        needs: What a run that cannot have it waits for.
        last_words: The newest lines of the server's stderr.
    """

    needs: Needs
    news: anyio.Event = field(default_factory=anyio.Event)
    over: bool = False
    doubted: bool = False
    reason: str | None = None
    last_words: deque[str] = field(default_factory=lambda: deque(maxlen=5))

    def end(self, reason: str | None = None) -> None:
        """Note that the connection is over; the first reason stays."""
        if self.reason is None:
            self.reason = reason
        self.over = True
        self.news.set()

    def doubt(self) -> None:
        """Ask the owner to look whether the server still answers at all."""
        self.doubted = True
        self.news.set()

    async def changes(self) -> None:
        """Wait until it is over or doubted."""
        await self.news.wait()
        self.news = anyio.Event()
