"""Who is told what is measured: how late the loop is, the file for a collector of text files, OpenTelemetry."""

import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import structlog

from onward.supervisor.metrics import Meter
from onward.supervisor.observed import Saw, nobody

if TYPE_CHECKING:
    from onward.supervisor.tracing import Tracing

LAG_EVERY_S = 1.0
TEXTFILE_EVERY_S = 15.0
LAST_SPANS_S = 3.0
COLLECTORS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")

log = structlog.get_logger()


async def measure_lag(meter: Meter) -> None:
    """Note how much later than asked for the loop wakes a sleeper: what every request and every run waits as well."""
    while True:
        due = anyio.current_time() + LAG_EVERY_S
        await anyio.sleep_until(due)
        meter.observe("onward_event_loop_lag_seconds", max(anyio.current_time() - due, 0.0))


@asynccontextmanager
async def traced(
    environment: Mapping[str, str], now: Callable[[], datetime], instance: str
) -> AsyncIterator[Callable[[], Saw]]:
    """Give what makes the observer of a run: of spans where the environment names a collector, else of nothing."""
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true" or not any(map(environment.get, COLLECTORS)):
        yield lambda: nobody
        return
    try:
        tracing = await anyio.to_thread.run_sync(_tracing, now, instance)
    except ImportError as error:
        remedy = "pip install 'onward[otel]'"
        log.error("a collector of traces is named, but the extra is missing", remedy=remedy, error=str(error))
        yield lambda: nobody
        return
    try:
        yield tracing.of_run
    finally:
        with anyio.move_on_after(LAST_SPANS_S, shield=True):
            await anyio.to_thread.run_sync(tracing.close, abandon_on_cancel=True)


def _tracing(now: Callable[[], datetime], instance: str) -> "Tracing":
    from onward.supervisor.tracing import tracing_to_collector

    return tracing_to_collector(now, instance)


async def write_textfile(path: Path, render: Callable[[], str]) -> None:
    """Replace `path` every few seconds, for a collector that reads files; it is removed at the end.

    What a crash leaves behind tells by its age that nobody renews it.
    """
    failing = False
    try:
        while True:
            try:
                await anyio.to_thread.run_sync(_replace, path, render())
            except OSError as error:
                if not failing:
                    log.warning("metrics file not written", path=str(path), error=str(error))
                failing = True
            else:
                failing = False
            await anyio.sleep(TEXTFILE_EVERY_S)
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(_remove, path)


def _replace(path: Path, text: str) -> None:
    # Not `*.prom`: a collector must never read half a file.
    temp = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "w") as file:
            file.write(text)
            os.fchmod(file.fileno(), 0o644)  # the collector is another user
        temp.replace(path)
    except OSError:
        temp.unlink(missing_ok=True)
        raise


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        log.warning("metrics file not removed", path=str(path), error=str(error))
