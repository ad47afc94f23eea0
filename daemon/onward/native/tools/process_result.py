"""The result of a call that ran under the launcher. Pure.

One function for live calls and for those whose end is found later, so that the model sees the same bytes either way.
"""

import signal
from typing import Any

from onward.core.text import EXCERPT_BYTES, decode, excerpt
from onward.core.vocabulary import Outcome
from onward.ports.process import CallExit, EndedBy
from onward.ports.tool import ToolResult

VERIFY = "Verify the state of what it was changing before assuming either way; a file may be half written."

_LOST = "the process that ran it was lost while this call was in flight"
_DAMAGED = "it ended, but its output is not what its exit record says"
_WHY_ENDED = {
    EndedBy.DEADLINE: (Outcome.TIMEOUT, "it was ended at its deadline after {duration_s:.1f} s"),
    EndedBy.CANCEL: (Outcome.CANCELLED, "it was ended on request after {duration_s:.1f} s"),
    EndedBy.ORPHAN_GRACE: (Outcome.INTERRUPTED, "it was ended after {duration_s:.1f} s because no daemon came back"),
    EndedBy.STOP: (Outcome.INTERRUPTED, "it was ended after {duration_s:.1f} s because the daemon was stopped"),
}


def result_of_exit(ended: CallExit | None, stdout: bytes, stderr: bytes) -> ToolResult:
    """Return what the model sees of a command that ended as `ended` says, with what was kept of its output.

    `ended` None means that its launcher was lost without an exit record.
    """
    if ended is None:
        return cut_off(Outcome.INTERRUPTED, _LOST, stdout, stderr)
    evidence = {"exit_code": ended.code, "ended_by": ended.ended_by.value}
    notes = _dropped(ended)
    if not ended.intact:
        return cut_off(Outcome.INTERRUPTED, _DAMAGED, stdout, stderr, notes=notes, evidence=evidence)
    if ended.ended_by is not EndedBy.ITSELF:
        outcome, why = _WHY_ENDED[ended.ended_by]
        because = why.format(duration_s=ended.duration_s) if ended.why is None else f"it was ended: {ended.why}"
        return cut_off(outcome, because, stdout, stderr, notes=notes, evidence=evidence)
    if ended.code == 0:
        return _result(Outcome.OK, [_body(stdout, stderr), *notes], stdout, stderr)
    parts = [_body(stdout, stderr), *notes, _status(ended.code)]
    return _result(Outcome.ERROR, parts, stdout, stderr, evidence=evidence)


def cut_off(
    outcome: Outcome,
    because: str,
    stdout: bytes = b"",
    stderr: bytes = b"",
    *,
    notes: tuple[str, ...] = (),
    evidence: dict[str, Any] | None = None,
) -> ToolResult:
    """Return the result of a call that did not reach its own end: `[error] <outcome>: <because>. ...`."""
    effect = "effect" if outcome is Outcome.INTERRUPTED else "full effect"
    unknown = f"Whether it took {effect} is unknown. It has NOT been retried."
    head = f"[error] {outcome.value}: {because}. {unknown} {VERIFY}"
    body = _body(stdout, stderr)
    parts = [head, f"What it had printed so far:\n{body}" if body else "It had printed nothing.", *notes]
    return _result(outcome, parts, stdout, stderr, evidence=evidence)


def _result(
    outcome: Outcome, parts: list[str], stdout: bytes, stderr: bytes, evidence: dict[str, Any] | None = None
) -> ToolResult:
    text = "\n".join(part.removesuffix("\n") for part in parts if part)
    if len(text.encode()) <= EXCERPT_BYTES:
        return ToolResult(text=text, outcome=outcome, evidence=evidence)
    whole = stdout + _before_stderr(stdout) + stderr if stderr else stdout
    return ToolResult(text=excerpt(text), outcome=outcome, evidence=evidence, full=whole)


def _body(stdout: bytes, stderr: bytes) -> str:
    return decode(stdout) + (_before_stderr(stdout).decode() + decode(stderr) if stderr else "")


def _before_stderr(stdout: bytes) -> bytes:
    return b"[stderr]\n" if not stdout or stdout.endswith(b"\n") else b"\n[stderr]\n"


def _dropped(ended: CallExit) -> tuple[str, ...]:
    streams = (("stdout", ended.stdout_dropped), ("stderr", ended.stderr_dropped))
    return tuple(f"[{name}: {count} bytes in its middle were not kept]" for name, count in streams if count)


def _status(code: int) -> str:
    if code >= 0:
        return f"[exit code {code}]"
    known = -code in {number.value for number in signal.Signals}
    return f"[ended by signal {-code}{f' ({signal.Signals(-code).name})' if known else ''}]"
