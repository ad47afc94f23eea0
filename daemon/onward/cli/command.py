"""What every verb of the command line is made with."""

import functools
import os
import sys
from collections.abc import Callable
from typing import Annotated

import typer

app = typer.Typer(
    name="onward",
    help="Supervises LLM agent runs and never loses one.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_CUT_OFF = 141
"""128 + SIGPIPE, as of any program whose reader went away."""

Run = Annotated[str, typer.Argument(metavar="RUN", help="A run id, or the beginning of one.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="JSON instead of text; JSON lines for several.")]


def verb(action: Callable[..., int]) -> Callable[..., None]:
    """Make a command of a function that returns an exit code: whatever it raises becomes one line and another code."""

    @functools.wraps(action)
    def command(*args: object, **kwargs: object) -> None:
        try:
            code = action(*args, **kwargs)
            sys.stdout.flush()
        except BrokenPipeError:
            # What is still buffered would fail again at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = _CUT_OFF
        except KeyboardInterrupt:
            code = 130
        except Exception as error:  # noqa: BLE001  # no traceback ever reaches a person
            code = _complain(error)
        raise typer.Exit(code)

    return command


def _complain(error: Exception) -> int:
    from onward.cli.terminal import say
    from onward.errors import OnwardError

    if isinstance(error, OnwardError):
        say(f"onward: {error}")
        return error.exit_code
    if isinstance(error, OSError):
        say(f"onward: {error}")
        return 1
    say(f"onward: a bug in Onward: {type(error).__name__}: {error}")
    return 1
