"""Logs: JSON lines for a machine, readable ones for a terminal; always on stderr, never the truth."""

import logging
import sys
from typing import TYPE_CHECKING, Literal

import structlog

if TYPE_CHECKING:
    from structlog.typing import EventDict, Processor, WrappedLogger

from onward.core.text import display

MAX_FIELD = 4000


def configure(level: str, form: Literal["auto", "json", "console"]) -> None:
    """Set structlog up for this process."""
    on_terminal = sys.stderr.isatty() if form == "auto" else form == "console"
    renderer: Processor
    if on_terminal:
        renderer = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    else:
        renderer = structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _shown,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


def _shown(_logger: "WrappedLogger", _method: str, event: "EventDict") -> "EventDict":
    """Escape what came from outside, so that no model or tool can forge a log line."""
    return {key: display(value, MAX_FIELD) if isinstance(value, str) else value for key, value in event.items()}
