"""The last good settings: what a daemon starts with when somebody has broken the configuration meanwhile."""

import os
import sys
from pathlib import Path

import structlog
from pydantic import ValidationError

from onward.config.places import Places
from onward.config.settings import Settings, load_settings
from onward.config.trusted import read_trusted
from onward.errors import BadConfiguration, OnwardError, Unreadable
from onward.store import disk

log = structlog.get_logger()

NAME = "last-good-settings.json"


def settings_to_start_with(places: Places) -> Settings:
    """Return the settings as they are configured or, where those are wrong, as they were last good.

    Raises:
        BadConfiguration: They are wrong, and no good ones are known.
    """
    try:
        settings = load_settings(places)
        settings.apply(places)
        return settings
    except BadConfiguration as error:
        known = _read(_file(places))
        if known is None:
            raise
        print(f"onward: {error}\nonward: the daemon starts with the last good settings", file=sys.stderr)  # noqa: T201
        return known


def keep(places: Places, settings: Settings) -> None:
    """Note settings that were good. Blocks; what cannot be written is only missed. It holds names of keys, no keys."""
    path = _file(places)
    try:
        text = settings.model_dump_json().encode()
        if path.is_file() and path.read_bytes() == text:
            return
        dir_fd = disk.open_dir(str(path.parent))
        try:
            disk.replace_file(path.name, text, "last_good", dir_fd=dir_fd)
        finally:
            os.close(dir_fd)
    except (OSError, OnwardError, ValueError) as error:  # ValueError: a path in them is no text
        log.warning("the last good settings cannot be kept", file=str(path), error=str(error))


def _file(places: Places) -> Path:
    # Of places as the environment has them: settings that say where the runs are may be the ones that are wrong.
    return places.runs_dir.parent / NAME


def _read(path: Path) -> Settings | None:
    try:
        return Settings.model_validate_json(read_trusted(path))
    except FileNotFoundError:
        return None
    except (BadConfiguration, Unreadable, ValidationError, OSError) as error:
        print(f"onward: {path} cannot be used: {error}", file=sys.stderr)  # noqa: T201
        return None
