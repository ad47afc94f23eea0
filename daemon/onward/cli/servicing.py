"""`onward service ...` on the command line."""

from pathlib import Path
from typing import Annotated

import typer

from onward.cli.command import verb

app = typer.Typer(help="Install Onward as a service of systemd.", no_args_is_help=True, rich_markup_mode=None)

ForUser = Annotated[bool, typer.Option("--user", help="For this user alone, not for the machine.")]
Wheel = Annotated[Path, typer.Argument(metavar="WHEEL", help="onward-VERSION-py3-none-any.whl", show_default=False)]


@app.command()
@verb
def install(
    wheel: Annotated[
        Path | None, typer.Argument(metavar="[WHEEL]", help="What it runs; else this installation.", show_default=False)
    ] = None,
    user: ForUser = False,
) -> int:
    """Place the units and start the service, now and at every boot."""
    from onward.cli import scope, service

    return service.install(wheel, scope.scope_of(user=user))


@app.command()
@verb
def upgrade(wheel: Wheel, user: ForUser = False) -> int:
    """Install another version beside this one and restart into it; commands in flight go on."""
    from onward.cli import scope, service

    return service.upgrade(wheel, scope.scope_of(user=user))


@app.command("allow-path")
@verb
def allow_path(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where agents may write.", show_default=False)],
    user: ForUser = False,
) -> int:
    """Let agents of the service write below a directory."""
    from onward.cli import scope, service

    return service.allow_path(directory, scope.scope_of(user=user))


@app.command()
@verb
def uninstall(user: ForUser = False) -> int:
    """Stop the service and remove what was placed; runs and configuration stay."""
    from onward.cli import scope, service

    return service.uninstall(scope.scope_of(user=user))
