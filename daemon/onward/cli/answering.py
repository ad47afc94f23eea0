"""The verbs about questions, as the command line declares them."""

from pathlib import Path
from typing import Annotated

import typer

from onward.cli.command import AsJson, Run, verb

app = typer.Typer(rich_markup_mode=None)

Which = Annotated[
    str | None,
    typer.Argument(metavar="[ID]", help="The question, as in q3; may be left out if one is open.", show_default=False),
]


@app.command()
@verb
def questions(
    run: Annotated[str | None, typer.Argument(metavar="[RUN]", help="Only its questions.", show_default=False)] = None,
    as_json: AsJson = False,
) -> int:
    """List what waits for a human, and how to answer it."""
    from onward.cli import questions as asked

    return asked.questions(run, as_json=as_json)


@app.command()
@verb
def answer(
    run: Run,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ID] VALUE...",
            help="A text; an option or its number; several with commas; NAME=VALUE for forms and budgets; - for stdin.",
            show_default=False,
        ),
    ] = None,
    file: Annotated[Path | None, typer.Option("--file", metavar="FILE", help="The answer is its text.")] = None,
) -> int:
    """Answer a question of a run."""
    from onward.cli import answers

    return answers.answer(run, words or [], file=file)


@app.command()
@verb
def approve(
    run: Run,
    which: Which = None,
    edit: Annotated[
        Path | None,
        typer.Option("--edit", metavar="FILE", help="With this text, or these arguments (JSON), instead; - for stdin."),
    ] = None,
    always: Annotated[bool, typer.Option("--always", help="The same for the rest of the run.")] = False,
) -> int:
    """Approve what a run asks about: a stage's result, a call, a document; or let it go on."""
    from onward.cli import answers

    return answers.approve(run, which, edit=edit, always=always)


@app.command()
@verb
def deny(
    run: Run,
    which: Which = None,
    reason: Annotated[str | None, typer.Option("--reason", metavar="R", help="What the run is told.")] = None,
) -> int:
    """Reject a stage's result, deny a call, comment on a document; or give up or stop a run."""
    from onward.cli import answers

    return answers.deny(run, which, reason=reason)
