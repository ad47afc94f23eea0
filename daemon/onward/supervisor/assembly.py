"""A daemon put together from its settings, on a store that is open. Nothing of it has begun."""

import os
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio.to_thread
import structlog

from onward.config.places import Places, find_places
from onward.config.settings import Settings
from onward.core.masking import KnownSecrets
from onward.native.tools.registry import builtin_tools
from onward.ports.clock import Clock
from onward.ports.process import ProcessSpawner
from onward.processes import LauncherSpawner
from onward.processes.cgroups import Limits
from onward.processes.identity import boot_id
from onward.processes.isolation import PROCESS_GROUPS, Isolation, isolate
from onward.recovery.recover import Claimant
from onward.store.filestore import FileStore
from onward.store.lock import Holder
from onward.supervisor import logs
from onward.supervisor.configuration import ConfigurationFiles
from onward.supervisor.last_good import keep
from onward.supervisor.metrics import Meter
from onward.supervisor.models import ConfiguredModels, Models
from onward.supervisor.notify import Notifier
from onward.supervisor.reload import watch_configuration
from onward.supervisor.secret_values import know_secrets
from onward.supervisor.service_manager import ServiceManager
from onward.supervisor.supervisor import Supervisor
from onward.supervisor.telling import measure_lag, traced, write_textfile

log = structlog.get_logger()

GoesRound = Callable[[], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What a daemon meets outside: its models, its processes, and which boot of the machine this is."""

    models: Callable[[Places, Clock], Models] | None = None
    """None: those that the settings name."""
    spawner: ProcessSpawner | None = None
    """None: launchers, in cgroups of their own where the service manager has delegated its own to this daemon."""
    boot_id: str = field(default_factory=boot_id)
    secrets: KnownSecrets = field(default_factory=KnownSecrets)
    manager: ServiceManager = field(default_factory=lambda: ServiceManager.from_environment(os.environ))


@dataclass(frozen=True, slots=True, kw_only=True)
class Daemon:
    """The supervisor, and what goes round beside it as long as it lives."""

    supervisor: Supervisor
    beside: Sequence[GoesRound]


async def put_together(
    settings: Settings,
    world: World,
    *,
    places: Places,
    store: FileStore,
    clock: Clock,
    holder: Holder,
    closing: AsyncExitStack,
) -> Daemon:
    """Return the daemon; `closing` is given what of it has to be closed."""
    models = _models(settings, world, places, clock, closing)
    notifier = Notifier(store, clock, settings.notify)
    meter = Meter()
    store.tell_flushes(partial(meter.observe, "onward_journal_flush_seconds"))
    spawner, isolation = await anyio.to_thread.run_sync(_processes, settings, world)

    def use(changed: Settings) -> None:
        logs.set_level(changed.log.level)
        models.configure(changed)
        supervisor.configure(max_active_runs=changed.daemon.max_active_runs, default_agent=changed.daemon.default_agent)

    def keep_and_know(changed: Settings) -> None:
        keep(find_places(), changed)
        know_secrets(changed, places.agent_dirs, world.secrets)

    await anyio.to_thread.run_sync(know_secrets, settings, places.agent_dirs, world.secrets)
    configuration = ConfigurationFiles(places, settings, use, keep_and_know)
    supervisor = Supervisor(
        store=store,
        spawner=spawner,
        tools=builtin_tools(),
        models=models,
        clock=clock,
        claimant=_claimant(store, holder),
        agent_dirs=places.agent_dirs,
        configuration=configuration,
        on_questions=notifier.look,
        default_agent=settings.daemon.default_agent,
        max_active_runs=settings.daemon.max_active_runs,
        entry_rate=settings.daemon.entry_rate,
        orphan_grace_s=settings.daemon.orphan_grace_s,
        isolation=isolation.to_json(),
        meter=meter,
        saw=await closing.enter_async_context(traced(os.environ, clock.now, store.instance)),
    )
    beside: list[GoesRound] = [notifier.serve, partial(watch_configuration, configuration), partial(measure_lag, meter)]
    if (textfile := settings.metrics.textfile) is not None:
        beside.append(partial(write_textfile, textfile, supervisor.metrics))
    return Daemon(supervisor=supervisor, beside=beside)


def _models(settings: Settings, world: World, places: Places, clock: Clock, closing: AsyncExitStack) -> Models:
    if world.models:
        return world.models(places, clock)
    models = ConfiguredModels(places, clock, settings, secrets=world.secrets)
    closing.push_async_callback(models.aclose)
    return models


def _processes(settings: Settings, world: World) -> tuple[ProcessSpawner, Isolation]:
    """Return what starts commands, and how they are kept apart. Blocks."""
    if world.spawner is not None:
        return world.spawner, PROCESS_GROUPS
    limits = Limits(memory_bytes=settings.daemon.call_memory_mib << 20, tasks=settings.daemon.call_tasks)
    isolation = isolate(limits)
    log.info("commands are kept apart", **isolation.to_json())
    if isolation.problem is not None:
        log.error("the next start of the daemon may fail", problem=isolation.problem, remedy=isolation.remedy)
    return LauncherSpawner(groups=isolation.groups, limits=limits), isolation


def _claimant(store: FileStore, holder: Holder) -> Claimant:
    return Claimant(
        machine_id=store.machine_id,
        runs_inode=store.runs_inode,
        boot_id=holder.boot_id,
        pid=holder.pid,
        start_ticks=holder.start_ticks,
    )
