"""Logs: JSON for a machine, on stderr or in the journal of systemd, readable lines for a terminal; never the truth."""

import logging
import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Literal

import structlog

if TYPE_CHECKING:
    from structlog.typing import EventDict, Processor, WrappedLogger

from onward.core.masking import KnownSecrets
from onward.core.text import display
from onward.supervisor.journald import JournalWriter, stderr_is_journal

MAX_FIELD = 4000
_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


class _Least:
    """The least severe level that is written, of this process."""

    level = _LEVELS["info"]


def configure(level: str, form: Literal["auto", "json", "console"], secrets: KnownSecrets | None = None) -> None:
    """Set structlog up for this process; the values in `secrets` are masked in every line."""
    set_level(level)
    on_terminal = sys.stderr.isatty() if form == "auto" else form == "console"
    renderer: Processor
    journal = None if form == "console" else _journal()
    if on_terminal:
        renderer = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    else:
        renderer = partial(_write, journal) if journal else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            _severe_enough,
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            partial(_shown, secrets or KnownSecrets()),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


def set_level(level: str) -> None:
    """Write from this level on: debug, info, warning or error."""
    _Least.level = _LEVELS[level]


def _journal() -> JournalWriter | None:
    """Return the way to journald, if stderr leads there anyway."""
    try:
        return JournalWriter() if stderr_is_journal(os.environ.get("JOURNAL_STREAM")) else None
    except OSError:
        return None  # stderr it is


def _write(journal: JournalWriter, logger: "WrappedLogger", method: str, event: "EventDict") -> str:
    fields = dict(event)
    journal.write(str(structlog.processors.JSONRenderer()(logger, method, event)), fields)
    raise structlog.DropEvent


def _severe_enough(_logger: "WrappedLogger", method: str, event: "EventDict") -> "EventDict":
    # Here and not in the wrapper class, which loggers keep once they were used.
    if _LEVELS.get(method, logging.CRITICAL) < _Least.level:
        raise structlog.DropEvent
    return event


def _shown(secrets: KnownSecrets, _logger: "WrappedLogger", _method: str, event: "EventDict") -> "EventDict":
    """Mask what is secret, and escape what came from outside, so that no model or tool can forge a log line."""
    return {
        key: display(secrets.mask_text(value), MAX_FIELD) if isinstance(value, str) else value
        for key, value in event.items()
    }
