"""The `onward` command. Each verb imports what it does when it is asked for: `onward ps` must be quick."""

import os
import sys
from typing import Annotated, NoReturn

import typer

from onward.cli import acting, answering, servicing
from onward.cli.command import AsJson, Run, app, verb


def main() -> NoReturn:
    """Run the command line; every way out is an exit code."""
    _open_streams()
    for stream in (sys.stdout, sys.stderr):
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors="backslashreplace")
    app()
    sys.exit(0)  # not reached: typer exits


def _open_streams() -> None:
    """Open what is closed of the standard streams: else a journal could get the number of one, and what it is told."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free, which is this one
        if getattr(sys, name) is None:
            stream = open(number, "w" if number else "r", closefd=False)  # noqa: SIM115  # as long as the process lives
            setattr(sys, name, stream)


@app.command()
@verb
def daemon(
    hold: Annotated[bool, typer.Option("--hold", help="List and serve the runs, but enter none.")] = False,
) -> int:
    """Run the daemon in the foreground (what systemd starts)."""
    from onward.supervisor.service_manager import guard_process

    guard_process()
    from onward.config.places import find_places
    from onward.supervisor.last_good import settings_to_start_with
    from onward.supervisor.main import run_daemon

    code = run_daemon(settings_to_start_with(find_places()), hold=hold)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # all is done: a thread that asks a dead mount would be waited for, for ever


@app.command()
@verb
def up(
    foreground: Annotated[
        bool, typer.Option("--foreground", help="Stay in front: as the one command of a container, say.")
    ] = False,
) -> int:
    """Start the daemon in the background for this user, if none runs; it is started again when it dies."""
    from onward.cli import control

    return control.stay() if foreground else control.up()


@app.command()
@verb
def down(
    leave_running: Annotated[
        bool, typer.Option("--leave-running", help="Commands in flight go on; the next daemon takes them over.")
    ] = False,
) -> int:
    """Drain and stop the daemon."""
    from onward.cli import control

    return control.down(leave_running=leave_running)


@app.command()
@verb
def status(as_json: AsJson = False) -> int:
    """Show the daemon and what its last recovery found."""
    from onward.cli import control

    return control.status(as_json=as_json)


@app.command()
@verb
def run(
    task: Annotated[str, typer.Argument(metavar="TASK", help="What is to be done.", show_default=False)],
    agent: Annotated[str | None, typer.Option("-a", "--agent", help="The agent definition.")] = None,
    workspace: Annotated[
        str | None, typer.Option("-w", "--workspace", metavar="DIR", help="Where it works; here by default.")
    ] = None,
    detach: Annotated[bool, typer.Option("-d", "--detach", help="Do not follow it: print its id.")] = False,
    model: Annotated[str | None, typer.Option("--model", help="PROVIDER/MODEL, or scripted/FILE.")] = None,
    on_restart: Annotated[
        str | None, typer.Option("--on-restart", metavar="resume|ask|stop", help="What happens after an interruption.")
    ] = None,
    max_cost_usd: Annotated[
        float | None, typer.Option("--max-cost-usd", min=0, metavar="X", help="US dollars, at most.")
    ] = None,
    max_turns: Annotated[
        int | None, typer.Option("--max-turns", min=1, metavar="N", help="Answers of the model, at most.")
    ] = None,
    key: Annotated[str | None, typer.Option("--idempotency-key", help="The same key gives the same run.")] = None,
) -> int:
    """Start a run (and a daemon, if none runs) and follow it."""
    from onward.cli import control, runs
    from onward.cli.terminal import out, say

    client, _ = control.ensure_daemon()
    started = runs.start(
        client,
        task,
        agent=agent,
        workspace=workspace,
        model=model,
        on_restart=on_restart,
        limits={"cost_usd": max_cost_usd, "turns": max_turns},
        key=key,
    )
    run_id = str(started["run_id"])
    if detach:
        out(run_id)
        return 0
    say(run_id)
    try:
        return runs.follow(client, run_id)
    except KeyboardInterrupt:
        return runs.detached(run_id)


@app.command()
@verb
def ps(
    everything: Annotated[bool, typer.Option("-a", "--all", help="Those that have ended too.")] = False,
    as_json: AsJson = False,
) -> int:
    """List runs: what they do and what they wait for."""
    from onward.cli import runs

    return runs.ps(everything=everything, as_json=as_json)


@app.command()
@verb
def show(run: Run, as_json: AsJson = False) -> int:
    """Show one run in full."""
    from onward.cli import runs

    return runs.show(run, as_json=as_json)


@app.command()
@verb
def logs(
    run: Run,
    following: Annotated[bool, typer.Option("-f", "--follow", help="Go on as it goes on.")] = False,
    last: Annotated[int | None, typer.Option("-n", min=0, max=1_000_000, help="Only the last N entries.")] = None,
    after: Annotated[int, typer.Option("--after", min=0, metavar="SEQ", help="Only what came after this record.")] = 0,
    as_json: AsJson = False,
) -> int:
    """Show a run's journal as a readable timeline."""
    from onward.cli import runs

    return runs.logs(run, following=following, last=last, after=after, as_json=as_json)


@app.command()
@verb
def wait(
    run: Run,
    timeout_s: Annotated[float | None, typer.Option("--timeout", min=0, metavar="S", help="Seconds, at most.")] = None,
    as_json: AsJson = False,
) -> int:
    """Wait until a run ends or stands still; the exit code says how."""
    from onward.cli import runs

    return runs.wait(run, timeout_s=timeout_s, as_json=as_json)


@app.command()
@verb
def inspect(
    target: Annotated[
        str, typer.Argument(metavar="PATH|RUN", help="A run, or a directory of runs.", show_default=False)
    ],
    max_revivals: Annotated[
        int | None, typer.Option("--max-revivals", min=0, help="As if this were the limit.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Say what recovery would do with a run: without a daemon, without writing."""
    from onward.cli import inspection

    return inspection.inspect(target, max_revivals=max_revivals, as_json=as_json)


@app.command()
@verb
def demo() -> int:
    """Show in two minutes what a crash does to a run: nothing."""
    from onward.cli import demo as scene

    return scene.demo()


app.add_typer(acting.app)
app.add_typer(answering.app)
app.add_typer(servicing.app, name="service")
