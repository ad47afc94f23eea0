"""The fault points that the swept run passes, and how often each is hit at least; a test compares it with a trace."""


def steps(point: str, *names: str, hits: int = 1) -> dict[str, int]:
    return {f"{point}.{name}": hits for name in names}


_REPLACED = (
    "write.before", "write.after", "flush.before", "flush.after",
    "rename.before", "rename.unsynced", "rename.after",
)  # fmt: skip

_FACTS = steps(
    "facts",
    *("entry.before", "entry.after", "mend.before", "mend.after"),
    *("write.before", "write.after", "flush.before", "flush.after"),
)

FIRST_LIFE = {
    **steps("runs.make", "before", "after"),
    **steps("instance", *_REPLACED),
    **steps("last_good", *_REPLACED),
    **_FACTS,
    **steps("birth", "make.before", "make.after", "entry.before", "entry.after", *_REPLACED),
    **steps("journal.mend", "before", "after"),
    **steps("journal.write", "before", "after", hits=37),
    **steps("journal.flush", "before", "after", hits=14),
    **steps("run", "answered", hits=8),
    **steps("run", "call_ended", hits=14),
    **steps("calls.make", "before", hits=6),
    **steps("calls.make", "after"),
    **steps("call.make", "before", "after", hits=6),
    **steps("blobs.make", "before", "after"),
    **steps("blob", *_REPLACED, hits=4),
    **steps("tools.write", "before_temp", "content", "before_flush", "before_rename", "after_rename", "done", hits=3),
    **steps("index", *_REPLACED),
    **steps("remove", "before", hits=11),
}

TIMED = {"journal.flush", "journal.write", "index", "remove"}
"""Hit as the clock has it: a life may pass such a point less often than listed. Then the case is a kill at rest."""

RECOVERIES = {
    "being born": "birth.rename.unsynced#1",
    "answered, not journaled": "run.answered#2",
    "batch written, not flushed": "journal.write.after#3",
    "handed over, not launched": "call.make.after#2",
    "file not renamed": "tools.write.before_rename#2",
    "reads side by side": "run.call_ended#7",
    "output kept, not journaled": "blob.rename.after#1",
    "waiting for a retry": "journal.flush.after#11",
    "ended, not indexed": "index.rename.before#1",
}
"""Where the first daemon dies, so that the second has something to recover."""

SECOND_LIFE = {
    **_FACTS,
    **steps("journal.mend", "before", "after"),
    **steps("journal.write", "before", "after", hits=7),
    **steps("journal.flush", "before", "after", hits=5),
    **steps("index", *_REPLACED),
    **steps("remove", "before", hits=2),
}
"""What a second daemon passes until it has recovered and a little further, wherever the first one died."""


TORN = steps("torn", "write.before", "write.after", "flush.before", "flush.after", "entry.before", "entry.after")
"""What it passes besides where it sets a torn tail aside."""


def cases(points: dict[str, int]) -> list[str]:
    return [f"{point}#{n}" for point, hits in sorted(points.items()) for n in range(1, hits + 1)]


def is_timed(fault: str) -> bool:
    """Whether a life may end without meeting this fault."""
    return any(fault.startswith(point) for point in TIMED)
