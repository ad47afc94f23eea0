"""The daemon's life: lock, list, serve, work, drain, let go."""

import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import structlog

from onward.api.app import make_app
from onward.api.refusing import refusing_app
from onward.api.server import serve
from onward.config.places import Places, find_places
from onward.config.settings import Settings
from onward.errors import OnwardError, StoreError, causes_of
from onward.processes.identity import start_ticks
from onward.processes.isolation import is_in_a_call
from onward.store.clock import SystemClock
from onward.store.filestore import FileStore, open_store
from onward.store.lock import this_process
from onward.supervisor import logs
from onward.supervisor.assembly import Daemon, World, put_together
from onward.supervisor.collector import collect_seldom
from onward.supervisor.service_manager import ServiceManager
from onward.supervisor.signals import Signals
from onward.supervisor.supervisor import Supervisor
from onward.supervisor.threads import make_threads
from onward.testing import faults

log = structlog.get_logger()

LOCK_CHECK_S = 60.0
SAY_EVERY_S = 10.0
TRY_AGAIN_S = 5.0
EXIT_LOCK_LOST = 74
"""EX_IOERR: whoever keeps the daemon starts it again, and finds out whether somebody else holds the runs now."""


def run_daemon(settings: Settings, world: World | None = None, *, hold: bool = False) -> int:
    """Run the daemon in the foreground until it is told to stop; returns its exit code. With `hold`, no run is entered.

    SIGTERM and SIGINT drain it and leave commands running for the next daemon, unless systemd says that the unit stops
    or the machine goes down; a second one ends it at once. SIGHUP reads the configuration again.

    Raises:
        OnwardError: It cannot begin: another daemon holds the runs, the socket is served, the disk refuses.
    """
    world = world or World()
    world.secrets.add_environment(os.environ)
    faults.install_from_environment()
    logs.configure(settings.log.level, settings.log.format, world.secrets)
    os.umask(0o077)
    try:
        return anyio.run(_main, settings, world, hold)
    except BaseExceptionGroup as group:
        causes = causes_of(group)
        told = [error for error in causes if isinstance(error, OnwardError)]
        if len(told) == len(causes):
            raise told[0] from group
        raise


async def _main(settings: Settings, world: World, hold: bool) -> int:
    signals = Signals(world.manager)
    async with anyio.create_task_group() as tasks:
        await tasks.start(signals.obey)
        with signals.starting:
            await _begin_and_work(settings, world, signals, hold)
        tasks.cancel_scope.cancel()
    log.info("stopped")
    return 0


async def _begin_and_work(settings: Settings, world: World, signals: Signals, hold: bool) -> None:
    places, clock = settings.apply(find_places()), SystemClock()
    await make_threads()
    holder = this_process(world.boot_id, start_ticks(os.getpid()) or 0)
    open_it = partial(
        open_store,
        places.runs_dir,
        clock,
        holder,
        lock_wait_s=settings.daemon.lock_wait_s,
        allow_network_fs=settings.daemon.allow_network_fs,
        secrets=world.secrets,
    )
    store = await _open_in_the_end(open_it, places.socket, world.manager)
    closing = AsyncExitStack()
    closing.push_async_callback(store.close)  # last of all, whatever fails to close before it
    try:
        daemon = await put_together(
            settings, world, places=places, store=store, clock=clock, holder=holder, closing=closing
        )
        await daemon.supervisor.boot(world.manager.progress, hold=hold)
        signals.lives(daemon.supervisor)
        collect_seldom()
        await _live(daemon, store, places, world.manager)
    finally:
        with anyio.CancelScope(shield=True):
            await closing.aclose()


async def _open_in_the_end(
    open_it: Callable[[], Awaitable[FileStore]], socket: Path, manager: ServiceManager
) -> FileStore:
    """Open the store; as a service, stay up while its disk is full or away, say so, and try again.

    Raises:
        OnwardError: As `open_store`; without a service manager somebody waits for the answer, so it is given at once.
    """
    try:
        return await open_it()
    except StoreError as error:
        if manager.address is None:
            raise
        reason = str(error)
    shutdown = anyio.Event()
    app = refusing_app(lambda: reason)
    async with anyio.create_task_group() as tasks:
        ready = partial(manager.ready, reason)
        tasks.start_soon(partial(serve, app, socket, on_ready=ready, shutdown=shutdown, listener=manager.listener))
        while True:
            log.error("waiting for the disk", error=reason)
            manager.alive(reason)
            await anyio.sleep(min(TRY_AGAIN_S, (manager.watchdog_s or TRY_AGAIN_S) / 2))
            try:
                store = await open_it()
                break
            except StoreError as error:
                reason = str(error)
        shutdown.set()
    return store


async def _live(daemon: Daemon, store: FileStore, places: Places, manager: ServiceManager) -> None:
    supervisor, shutdown = daemon.supervisor, anyio.Event()
    app = await anyio.to_thread.run_sync(partial(make_app, supervisor, shutdown=shutdown, is_in_a_call=is_in_a_call))
    served = anyio.Event()

    def ready() -> None:
        log.info("ready", socket=str(places.socket), runs_dir=str(places.runs_dir), recovering=supervisor.recovering)
        manager.ready(supervisor.summary)

    async with anyio.create_task_group() as tasks:

        async def api() -> None:
            await serve(app, places.socket, on_ready=ready, shutdown=shutdown, listener=manager.listener)
            served.set()

        tasks.start_soon(api)
        tasks.start_soon(_tell, manager, supervisor)
        tasks.start_soon(_tell_of_stop, manager, supervisor)
        tasks.start_soon(_watch_lock, store)
        for beside in daemon.beside:
            tasks.start_soon(beside)
        await supervisor.serve()
        shutdown.set()
        await served.wait()
        tasks.cancel_scope.cancel()


async def _tell(manager: ServiceManager, supervisor: Supervisor) -> None:
    """Tell the service manager what is being done, and that this loop goes round."""
    if manager.address is None:
        return
    often_s = min(manager.watchdog_s / 3 if manager.watchdog_s else SAY_EVERY_S, SAY_EVERY_S)
    while True:
        manager.alive(supervisor.summary)
        await anyio.sleep(min(often_s, 1.0) if supervisor.recovering else often_s)


async def _tell_of_stop(manager: ServiceManager, supervisor: Supervisor) -> None:
    await supervisor.draining()
    manager.stopping(supervisor.summary)


async def _watch_lock(store: FileStore) -> None:
    """A daemon that lost its lock file must not write another byte: somebody else may hold the runs now."""
    while True:
        await anyio.sleep(LOCK_CHECK_S)
        if not await anyio.to_thread.run_sync(store.still_ours):
            log.critical("the lock file of the runs directory was removed or replaced; stopping at once")
            os._exit(EXIT_LOCK_LOST)
