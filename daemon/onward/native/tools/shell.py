"""The shell: a command under the launcher, in the workspace."""
# ruff: noqa: D417  # the Args are what the model is told

from typing import Annotated

from annotated_types import Gt
from anyio import to_thread

from onward.core.text import clean
from onward.core.vocabulary import Effect, Outcome
from onward.errors import StoreError
from onward.native.tools.definition import ToolError, tool
from onward.native.tools.process_result import cut_off, result_of_exit
from onward.ports.process import LaunchSpec
from onward.ports.tool import ToolContext, ToolResult

# Linux refuses to execute with one argument longer than this: MAX_ARG_STRLEN in execve(2).
MAX_COMMAND_BYTES = 128 * 1024 - 1


@tool(effect=Effect.UNKNOWN, runs_process=True)
async def shell(context: ToolContext, *, command: str, timeout_s: Annotated[float, Gt(0)] | None = None) -> ToolResult:
    """Run a command with /bin/sh in the workspace and return what it printed.

    The result is stdout, then stderr below a line `[stderr]`, then `[exit code N]` when that is not 0. There is no
    terminal and no input. What the command leaves running in the background is ended with it.

    Args:
        command: The command line, passed to `/bin/sh -c`.
        timeout_s: Seconds after which the command and everything it started is ended; may only shorten the limit of
            the run.
    """
    size = len(command.encode())
    if size > MAX_COMMAND_BYTES:
        raise ToolError(
            f"the command has {size} bytes, at most {MAX_COMMAND_BYTES} can be run; write it to a file first"
        )
    limits = [limit for limit in (timeout_s, context.deadline_s) if limit is not None]
    spec = LaunchSpec(
        argv=("/bin/sh", "-c", command),
        cwd=str(context.workspace),
        env=context.env,
        call_dir=context.call_dir,
        runs_lock=context.runs_lock,
        deadline_s=min(limits, default=None),
        orphan_grace_s=context.orphan_grace_s,
    )
    ended = await context.spawner.run(spec)
    try:
        stdout, stderr = await to_thread.run_sync(context.spawner.outputs, context.call_dir)
    except (OSError, StoreError) as error:
        # Raised from here an OSError would say that the command never ran.
        return cut_off(Outcome.INTERRUPTED, f"its output cannot be read ({clean(str(error))})")
    return result_of_exit(ended, stdout, stderr)
