"""The verbs that act on runs, on the configuration and on the installation, as the command line declares them."""

from typing import Annotated

import typer

from onward.cli.command import AsJson, Run, verb

app = typer.Typer(rich_markup_mode=None)
agents_app = typer.Typer(invoke_without_command=True, no_args_is_help=False, rich_markup_mode=None)


@app.command()
@verb
def send(
    run: Run,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to say; - reads stdin.", show_default=False)],
) -> int:
    """Say something to a run."""
    from onward.cli import acts

    return acts.send(run, text)


@app.command()
@verb
def pause(run: Run, reason: Annotated[str, typer.Option("--reason", help="Shown while it is paused.")] = "") -> int:
    """Let a run begin nothing new until it is resumed."""
    from onward.cli import acts

    return acts.pause(run, reason=reason)


@app.command()
@verb
def resume(
    run: Run,
    cost_usd: Annotated[float | None, typer.Option("--add-cost-usd", metavar="X", help="US dollars more.")] = None,
    turns: Annotated[int | None, typer.Option("--add-turns", metavar="N", help="Turns more.")] = None,
    tokens: Annotated[int | None, typer.Option("--add-tokens", metavar="N", help="Tokens more.")] = None,
    tool_calls: Annotated[int | None, typer.Option("--add-tool-calls", metavar="N", help="Tool calls more.")] = None,
    active_s: Annotated[float | None, typer.Option("--add-active-s", metavar="S", help="Seconds more.")] = None,
) -> int:
    """Let a paused or parked run go on, with higher limits where they are given."""
    from onward.cli import acts

    add = {"cost_usd": cost_usd, "turns": turns, "tokens": tokens, "tool_calls": tool_calls, "active_s": active_s}
    return acts.resume(run, add=add)


@app.command()
@verb
def revive(
    target: Annotated[
        str,
        typer.Argument(metavar="RUN|PATH", help="A run, or its directory.", show_default=False),
    ],
    max_revivals: Annotated[
        int | None, typer.Option("--max-revivals", min=0, metavar="N", help="Not if it was revived so often already.")
    ] = None,
) -> int:
    """Bring back a quarantined, failed, damaged or interrupted run, with a daemon or without."""
    from onward.cli import acts

    return acts.revive(target, max_revivals=max_revivals)


@app.command()
@verb
def cancel(run: Run) -> int:
    """End a run and what it runs."""
    from onward.cli import acts

    return acts.cancel(run)


@app.command()
@verb
def hold(reason: Annotated[str, typer.Option("--reason", help="Shown while it lasts.")] = "") -> int:
    """Let no run be entered, over restarts too, until it is released."""
    from onward.cli import holding

    return holding.hold(reason=reason)


@app.command()
@verb
def release(
    run: Annotated[str | None, typer.Argument(metavar="[RUN]", help="A run that is held.", show_default=False)] = None,
    everything: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
) -> int:
    """Let held runs go on here."""
    from onward.cli import holding

    return holding.release(run, everything=everything)


@app.command()
@verb
def reload() -> int:
    """Let the daemon read its configuration again; a bad one changes nothing."""
    from onward.cli import control

    return control.reload()


@app.command()
@verb
def doctor(as_json: AsJson = False) -> int:
    """Say what is wrong with this installation, and what to do about it."""
    from onward.cli import doctor as examination

    return examination.doctor(as_json=as_json)


@agents_app.callback()
def agents(context: typer.Context, as_json: AsJson = False) -> None:
    """List the agent definitions, or check them."""
    from onward.cli import agents as listing

    if context.invoked_subcommand is None:
        verb(listing.show)(as_json=as_json)


@agents_app.command()
@verb
def check(
    target: Annotated[str | None, typer.Argument(metavar="[NAME|FILE]", help="One agent; all by default.")] = None,
    as_json: AsJson = False,
) -> int:
    """Say what is wrong with agent definitions: file, line and remedy. Needs no daemon."""
    from onward.cli import agents as listing

    return listing.check(target, as_json=as_json)


app.add_typer(agents_app, name="agents")
