"""What `onward doctor` looks at, and what one look finds."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from onward.config.places import Places
from onward.config.settings import Settings

Level = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing as it is. `remedy` says what to do where it is not well."""

    level: Level
    text: str
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """The installation that the environment means. `settings` None: they cannot be read."""

    places: Places
    """With what the settings say, where they can be read."""
    client_socket: Path
    """Where this command looks for the daemon."""
    settings: Settings | None
    complaints: tuple[str, ...] = ()
    """What is wrong with the settings, as text with file, line and remedy."""


Look = Callable[[Installation], Iterator[Finding]]


def existing(path: Path) -> Path:
    """Return the path, or the nearest one above it that is there."""
    return next(each for each in (path, *path.parents) if each.exists())
