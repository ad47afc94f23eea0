"""The fold: `apply(state, line)` changes a run's state by one journal line. Pure, deterministic.

The same function serves the live run (each record right after it was written) and replay, so the two cannot differ.
"""

from collections.abc import Callable

from onward.core import fold_life, fold_work
from onward.core.records import FOLD_VERSION, SCHEMA, BadRecord, Json, problem_with
from onward.core.state import Damage, RunState
from onward.errors import InternalError


class NewerRecord(ValueError):
    """A newer Onward wrote something that must not be overlooked; the run is not to be touched by this version."""


def apply(state: RunState, line: Json) -> None:
    """Change `state` by one decoded line (`seq`, `ts`, `type` and the record's members).

    Unknown types are counted in `seq` and otherwise ignored.

    Raises:
        BadRecord: The line does not fit its type or the state; nothing was changed.
        NewerRecord: Its type is unknown and it says `"must": true`, or its schema is newer.
    """
    seq, kind = line["seq"], line["type"]
    handler = _HANDLERS.get(kind)
    if handler is None:
        if line.get("must"):
            raise NewerRecord(f"record {seq} is a {kind!r}, which this version does not know")
    else:
        if kind == "RunStarted":
            _refuse_newer_schema(line)
        if problem := problem_with(line):
            raise BadRecord(f"{kind}: {problem}")
        try:
            handler(state, line)
        except InternalError as error:
            raise BadRecord(str(error)) from None
    if seq > state.seq:
        state.seq = seq
    ts = line.get("ts")
    if type(ts) is str:
        state.updated_at = ts


def _refuse_newer_schema(line: Json) -> None:
    """Before the members are looked at: a newer schema may have others."""
    schema = line.get("schema")
    if type(schema) is int and schema > SCHEMA:
        raise NewerRecord(f"the journal has schema {schema}, this version knows {SCHEMA}")


def note_damage(state: RunState, offset: int, what: str) -> None:
    """Record that the journal is damaged at byte `offset`, at the place that the fold has reached."""
    state.damage.append(Damage(offset=offset, what=what))
    state.gap_since_turn = True
    if state.turn is not None:
        state.turn.gap = True


_HANDLERS: dict[str, Callable[[RunState, Json], None]] = {**fold_life.HANDLERS, **fold_work.HANDLERS}


def restore(line: Json) -> RunState | None:
    """Return the state that a Checkpoint line holds, or None when it is none of this fold version or not whole."""
    if line["type"] != "Checkpoint" or problem_with(line) or line.get("fold") != FOLD_VERSION:
        return None
    try:
        state = RunState.from_json(line["state"])
    except (KeyError, TypeError, ValueError):
        return None
    if not state.run_id:
        return None
    apply(state, line)
    return state
