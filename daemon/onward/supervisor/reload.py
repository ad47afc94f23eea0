"""Watches the configuration, so that a save is used (or complained about) at once. What it sees is only a hint."""

from collections.abc import Sequence
from pathlib import Path

import anyio
import structlog
from watchfiles import Change, awatch

from onward.supervisor.configuration import ConfigurationFiles

log = structlog.get_logger()

POLL_S = 5.0
LOOK_AGAIN_MS = 10_000
"""A change that the kernel does not tell of (another machine's, on a network file system) is seen then."""
STEP_MS = 200
"""How long the watching thread sleeps at a time, and so how long a daemon that stops waits for it at most."""


async def watch_configuration(configuration: ConfigurationFiles, poll_s: float = POLL_S) -> None:
    """Read the configuration again whenever a file of it has changed. Never ends."""
    await configuration.reload()  # a file may have been saved since the daemon read it
    try:
        while True:
            await _watch(configuration)
    except Exception as error:  # noqa: BLE001  # watchfiles raises several; without it all goes on, only less promptly
        log.warning("configuration is polled, as it cannot be watched", error=str(error), every_s=poll_s)
    while True:
        await anyio.sleep(poll_s)
        await configuration.reload_if_changed()


async def _watch(configuration: ConfigurationFiles) -> None:
    """Watch until the directories to be watched are others."""
    watched = await anyio.to_thread.run_sync(watchable, configuration.directories)
    wanted = {str(directory) for directory in configuration.directories}

    def matters(_change: Change, path: str) -> bool:
        return path in wanted or str(Path(path).parent) in wanted or any(each.startswith(path + "/") for each in wanted)

    stop, begun = anyio.Event(), anyio.Event()

    async def look_once() -> None:
        # What changed before the watch began is told by nobody. It begins before awatch waits for the first time.
        await begun.wait()
        await configuration.reload_if_changed()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_set_when_cancelled, stop)
        tasks.start_soon(look_once)
        begun.set()
        async for _ in awatch(
            *watched,
            recursive=False,
            watch_filter=matters,
            step=STEP_MS,
            rust_timeout=LOOK_AGAIN_MS,
            yield_on_timeout=True,
            stop_event=stop,
            debug=False,
        ):
            await configuration.reload_if_changed()
            if watched != await anyio.to_thread.run_sync(watchable, configuration.directories):
                break
        tasks.cancel_scope.cancel()


async def _set_when_cancelled(stop: anyio.Event) -> None:
    # awatch waits for its thread before it hears of a cancellation, and the thread looks at this event only.
    try:
        await anyio.sleep_forever()
    finally:
        stop.set()


def watchable(directories: Sequence[Path]) -> list[Path]:
    """Return these directories, in place of a missing one the nearest that is there: it may be made in it."""
    found = [next(each for each in (directory, *directory.parents) if each.is_dir()) for directory in directories]
    return sorted(set(found))
