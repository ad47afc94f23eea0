"""What daemon.jsonl says of the daemons before: who died with which run in hand, and what is set aside or held. Pure.

The file is read as a whole at every start. It is a help, not the truth: lines that are missing or make no sense cost
what they said, never a start.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from onward.core.records import Json
from onward.core.state import RunState
from onward.core.status import Status
from onward.core.times import seconds_between

CRASH_LOOP = 15
CRASH_LOOP_S = 300.0
"""So many unclean ends of daemons in so many seconds of one boot: the next one enters nothing by itself."""
KEPT_LIVES = 64
KEPT_RELEASES = 1000
KEPT_OTHERS_S = 30 * 86_400.0
READ, ENTERED = "read", "entered"
"""What a daemon does with a run that it has named."""
QUARANTINE, HOLD = "quarantine", "hold"
"""What a run is released from."""

Place = tuple[str, int]
"""Where runs lie: the machine's id and the inode of the runs directory. An empty machine id is not known."""


@dataclass(slots=True, kw_only=True)
class Life:
    """One daemon. `named` are the runs that it had in hand, and what it did with them."""

    boot_id: str
    began_at: str
    stopped: bool = False
    folding: bool = False
    excused: bool = False
    named: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class DaemonFacts:
    """Everything that the facts amount to. `home` is where these runs belong, None while that is not known."""

    lives: deque[Life] = field(default_factory=lambda: deque(maxlen=KEPT_LIVES))
    home: Place | None = None
    left: set[Place] = field(default_factory=set)
    """Where these runs came from, when somebody said that they are not to be waited for there."""
    released: dict[str, Place] = field(default_factory=dict)
    """Runs that go on in the place that is named, wherever they were before."""
    let_go: set[str] = field(default_factory=set)
    """Runs among them that were released by name since a hold last began or ended."""
    suspended: dict[str, str] = field(default_factory=dict)
    """Runs that are not read before a human revives them, and why."""
    watched: set[str] = field(default_factory=set)
    """Runs that a human has revived out of that, and that were not entered and done with since: they are named then."""

    def apply(self, fact: Json) -> None:
        """Take one fact; what is unknown or makes no sense is ignored."""
        if (handler := _HANDLERS.get(fact.get("type", ""))) is not None:
            handler(self, fact)

    def lets_go(self, run_id: str, here: Place) -> bool:
        """Whether a human said that this very run is to go on here."""
        return self.released.get(run_id) == here

    def passes_hold(self, run_id: str, here: Place) -> bool:
        """Whether a human let this very run go on here, whatever holds the others."""
        return run_id in self.let_go and self.lets_go(run_id, here)

    @property
    def life(self) -> Life | None:
        return self.lives[-1] if self.lives else None


def fold_facts(facts: Iterable[Json]) -> DaemonFacts:
    """Return what facts amount to."""
    folded = DaemonFacts()
    for fact in facts:
        folded.apply(fact)
    return folded


@dataclass(frozen=True, slots=True, kw_only=True)
class StartDecision:
    """How a daemon begins.

    `blamed` are runs to suspend, with the reason. `one_by_one`: each run is named before it is read. `unclean`: the
    daemon before died. `held` says by its word why nothing is entered, None: it is.
    """

    blamed: dict[str, str]
    one_by_one: bool
    unclean: bool
    held: str | None
    reason: str = ""


COPY, LOOP = "copy", "crash-loop"
ELSEWHERE = "it was worked on in another place: this is a copy, or a restored backup"
"""Why a run is held that did not come to work here before."""


def decide_start(facts: DaemonFacts, *, here: Place, boot_id: str, now: str) -> StartDecision:
    """Decide how a daemon begins that finds these facts."""
    held, reason = _held(facts, here, boot_id, now)
    last = facts.life
    return StartDecision(
        blamed=_blamed(facts, boot_id),
        one_by_one=len(facts.lives) > 1 and all(_died_folding(life, boot_id) for life in list(facts.lives)[-2:]),
        unclean=last is not None and not last.stopped,
        held=held,
        reason=reason,
    )


def _blamed(facts: DaemonFacts, boot_id: str) -> dict[str, str]:
    """Return the runs that the last daemon had named when it died. A machine that went down says nothing of a run."""
    last = facts.life
    if last is None or last.stopped or last.boot_id != boot_id:
        return {}
    return {
        run_id: f"the daemon died while this run was being {doing}; it is left alone until it is revived"
        for run_id, doing in last.named.items()
        if run_id not in facts.suspended
    }


def _died_folding(life: Life, boot_id: str) -> bool:
    return life.boot_id == boot_id and not life.stopped and life.folding


def _held(facts: DaemonFacts, here: Place, boot_id: str, now: str) -> tuple[str | None, str]:
    if facts.home is not None and is_elsewhere(facts.home, here):
        return COPY, "these runs were worked on in another place: they are a copy, or a restored backup"
    deaths = [life for life in facts.lives if _counts(life, boot_id, now)]
    if len(deaths) >= CRASH_LOOP:
        return LOOP, f"the daemon died {len(deaths)} times within {CRASH_LOOP_S:.0f} s"
    return None, ""


def _counts(life: Life, boot_id: str, now: str) -> bool:
    if life.boot_id != boot_id or life.stopped or life.excused:
        return False
    return abs(seconds_between(life.began_at, now)) <= CRASH_LOOP_S


def kept_facts(facts: Sequence[Json], now: str) -> list[Json]:
    """Return, in order, the facts that still mean something: what they amount to is the same, and it is bounded."""
    folded = fold_facts(facts)
    life = folded.life
    begun = [at for at, fact in enumerate(facts) if fact.get("type") == "DaemonStarted"]
    lives_from = begun[-KEPT_LIVES] if len(begun) >= KEPT_LIVES else 0
    anew = max((at for at, fact in enumerate(facts) if fact.get("type") == "HeldAnew"), default=None)
    first = begun[:1]  # it may be what says where these runs belong

    def keeps(at: int, fact: Json) -> bool:
        match fact["type"]:
            case "DaemonStarted" | "DaemonStopped" | "FoldingBegun" | "FoldingEnded":
                return at >= lives_from or at in first
            case "RunEntering":
                return life is not None and _run_id(fact) in life.named and at > begun[-1]
            case "RunEntered":
                return False
            case "RunSuspended":
                return _run_id(fact) in folded.suspended
            case "Released":
                released = folded.watched if fact.get("what") == QUARANTINE else folded.released
                return not _run_id(fact) or _run_id(fact) in released
            case "HeldAnew":
                return at == anew
            case _:
                return seconds_between(str(fact.get("ts")), now) <= KEPT_OTHERS_S

    return [fact for at, fact in enumerate(facts) if keeps(at, fact)]


def is_elsewhere(place: Place, here: Place) -> bool:
    """Whether a place is another one than this."""
    return place[1] != here[1] or bool(place[0] and here[0] and place[0] != here[0])


def is_copy(state: RunState, here: Place, facts: DaemonFacts) -> bool:
    """Whether a run was worked on elsewhere the last time, and nobody said that it is to go on here."""
    return was_elsewhere(state, here) and not facts.lets_go(state.run_id, here) and _claimed(state) not in facts.left


def was_elsewhere(state: RunState, here: Place) -> bool:
    """Whether a run was worked on elsewhere the last time: what its calls left is evidence of nothing here."""
    return state.claim is not None and is_elsewhere(_claimed(state), here)


def _claimed(state: RunState) -> Place:
    claim = state.claim or {}
    return str(claim.get("machine_id", "")), int(claim.get("runs_inode", 0))


def is_suspect(state: RunState) -> bool:
    """Whether a run may be what kills the daemon: one more charged revival without progress is its last."""
    longest = state.limits.get("max_stalled_revivals", 3)
    return state.status is Status.ACTIVE and state.stalled_revivals >= max(1, longest - 1)


def has_settled(state: RunState, progress_at: str) -> bool:
    """Whether a run that had its last progress then has progressed since it was entered, or waits for something."""
    return state.last_progress_at != progress_at or state.retry_at is not None


def _daemon_started(facts: DaemonFacts, fact: Json) -> None:
    facts.lives.append(Life(boot_id=str(fact.get("boot_id")), began_at=str(fact.get("ts"))))
    place = _place(fact, "")
    if facts.home is None and place is not None:
        facts.home = place


def _daemon_stopped(facts: DaemonFacts, fact: Json) -> None:
    if facts.life is not None:
        facts.life.stopped = True
        facts.life.named = {}


def _folding_begun(facts: DaemonFacts, fact: Json) -> None:
    if facts.life is not None:
        facts.life.folding = True


def _folding_ended(facts: DaemonFacts, fact: Json) -> None:
    if facts.life is not None:
        facts.life.folding = False
        facts.life.named = {run_id: doing for run_id, doing in facts.life.named.items() if doing != READ}


def _run_entering(facts: DaemonFacts, fact: Json) -> None:
    """Runs are read one by one: naming the next says that the one before has been read."""
    doing = str(fact.get("doing", ENTERED))
    if facts.life is not None and (run_id := _run_id(fact)):
        if doing == READ:
            facts.life.named = {name: done for name, done in facts.life.named.items() if done != READ}
        facts.life.named[run_id] = doing


def _run_entered(facts: DaemonFacts, fact: Json) -> None:
    if facts.life is not None and facts.life.named.pop(_run_id(fact), None) == ENTERED:
        facts.watched.discard(_run_id(fact))


def _run_suspended(facts: DaemonFacts, fact: Json) -> None:
    if run_id := _run_id(fact):
        facts.suspended[run_id] = str(fact.get("reason", "the daemon died with it in hand"))
        facts.watched.discard(run_id)


def _released(facts: DaemonFacts, fact: Json) -> None:
    if not (run_id := _run_id(fact)):
        _released_all(facts, fact)
        return
    if fact.get("what") == QUARANTINE:
        facts.suspended.pop(run_id, None)
        facts.watched.add(run_id)
        if facts.life is not None:
            facts.life.named.pop(run_id, None)
        return
    facts.released.pop(run_id, None)
    if (here := _place(fact, "")) is not None:
        facts.released[run_id] = here
        facts.let_go.add(run_id)
    while len(facts.released) > KEPT_RELEASES:
        oldest = next(iter(facts.released))
        del facts.released[oldest]
        facts.let_go.discard(oldest)


def _released_all(facts: DaemonFacts, fact: Json) -> None:
    for life in facts.lives:
        life.excused = True
    facts.let_go.clear()
    here, there = _place(fact, ""), _place(fact, "from_")
    if here is not None:
        facts.home = here
    if there is not None:
        facts.left.add(there)


def _held_anew(facts: DaemonFacts, fact: Json) -> None:
    facts.let_go.clear()


def _run_id(fact: Json) -> str:
    run_id = fact.get("run_id")
    return run_id if isinstance(run_id, str) else ""


def _place(fact: Json, prefix: str) -> Place | None:
    machine_id, inode = fact.get(f"{prefix}machine_id"), fact.get(f"{prefix}runs_inode")
    return (machine_id, inode) if isinstance(machine_id, str) and isinstance(inode, int) else None


_HANDLERS = {
    "DaemonStarted": _daemon_started,
    "DaemonStopped": _daemon_stopped,
    "FoldingBegun": _folding_begun,
    "FoldingEnded": _folding_ended,
    "RunEntering": _run_entering,
    "RunEntered": _run_entered,
    "RunSuspended": _run_suspended,
    "Released": _released,
    "HeldAnew": _held_anew,
}
