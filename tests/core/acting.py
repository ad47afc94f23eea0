"""A pretend daemon that writes journals as a real one does: it works, is told things, dies anywhere, and recovers.

A history is made of moves, each a word and a number. A move that is impossible at its time does nothing, so that any
list of moves is a history, and a shorter list is a simpler one.
"""

from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from onward.core import fold
from onward.core.inspection import by_hand, revive_refused
from onward.core.plan import Evidence, Found, Policy, RecoveryPlan, plan, unbatched_calls
from onward.core.records import Record, RunParked, ToolCallDone
from onward.core.state import RunState
from onward.core.step import End, Infer, Park, Rest, RunCalls, WaitForHuman, Write, next_step, written
from onward.core.vocabulary import Outcome, SettledBy
from tests.core import journals as j
from tests.core.journals import Json
from tests.core.staged import ANSWERS, ASKED, BLOCKS, STAGED

NOW, EARLIER, LATER = "2026-12-01T12:00:00Z", "2026-12-01T11:00:00Z", "2026-12-01T13:00:00Z"
DURABLE = {
    "RunStarted", "RunRevived", "MessageAdded", "ToolBatch", "ToolCallStarted", "RunPaused", "RunEnded",
    "InteractionOpened", "InteractionAnswered",
}  # fmt: skip
ENDED = ("completed", "failed", "cancelled")
PROVIDER_IDS = ("call_1", "call_1", "", "../x", "t1c1", "toolu_9", "é", "x" * 80)
WEIGHTS = {
    "go_on": 40, "write": 2, "reply": 2, "expire": 1,
    "think": 4, "start": 5, "finish": 3, "boot": 4, "request": 1, "answer": 1, "say": 2, "fail": 1, "late": 1,
    "checkpoint": 1, "crash": 2, "power": 1, "drain": 1, "control": 1, "revive": 1, "cancel": 1,
    "settings": 1, "end": 1,
}  # fmt: skip
MOVES = [move for move, weight in WEIGHTS.items() for _ in range(weight)]

moves = st.lists(st.tuples(st.sampled_from(MOVES), st.integers(0, 63)), min_size=20, max_size=60)


@dataclass(slots=True)
class Daemon:
    """`records` are the members of each line of the journal, `state` what the living process holds."""

    records: list[Json] = field(default_factory=list)
    dur: int = 0
    state: RunState = field(default_factory=RunState, repr=False)
    alive: bool = False
    boot: int = 1
    seen: int | None = None
    """The journal's seq when the request that is out was made."""
    messages: int = 0

    def write(self, record: Json) -> None:
        """Append one record, and apply it as a live run does."""
        line = {"seq": self.state.seq + 1, "dur": self.dur, "ts": j.TS, **record}
        fold.apply(self.state, line)
        self.records.append(line)
        if record["type"] in DURABLE:
            self.dur = line["seq"]

    @property
    def data(self) -> bytes:
        return b"".join(as_line(record) for record in self.records)

    def act(self, move: str, n: int) -> None:
        if move in ("boot", "go_on", "revive") or self.alive:
            getattr(self, f"_{move}")(n)

    def _go_on(self, n: int) -> None:
        """Do whatever is next."""
        if not self.alive:
            self._boot(n % 48)
            return
        step = self._next()
        if any(call.started for call in self.state.open_calls):
            self._finish(n)
        elif isinstance(step, Infer):
            self._think(n)
        elif isinstance(step, RunCalls):
            self._start(n)
        elif isinstance(step, Write):
            self._write(n)
        elif isinstance(step, WaitForHuman):
            self._reply(n)
        elif isinstance(step, Park):
            self._park(step)
        elif isinstance(step, Rest) and n % 2:
            self._control(n)
        elif isinstance(step, End) and n % 4 == 0:
            self._end(n)

    def _next(self) -> Any:
        return next_step(self.state, now=NOW, active_s=0.0, workers=3)

    def _park(self, step: Park) -> None:
        for record in written(step):
            self.write(record.to_json())

    def _say(self, n: int) -> None:
        if self.state.status not in ENDED:
            self.messages += 1
            self.write(j.said(f"message {self.messages}" if n % 8 else " ", f"m-{self.messages}"))

    def _request(self, n: int) -> None:
        step = self._next()
        if self.seen is None and isinstance(step, Infer):
            self.seen = self.state.seq
            self.write(j.inferring(step.attempt, active_s=float(n)))

    def _think(self, n: int) -> None:
        self._request(n)
        self._answer(n)

    def _fail(self, n: int) -> None:
        if self.seen is not None:
            self.seen = None
            self.write(j.failed((None, EARLIER, LATER)[n % 3]))

    def _answer(self, n: int) -> None:
        if self.seen is None or self.state.status != "active":
            return
        number, asked = self.state.turns + 1, n % 4
        ids = [PROVIDER_IDS[(n + position) % len(PROVIDER_IDS)] for position in range(asked)]
        named = [ASKED[(n // 4 + p) % len(ASKED)] if self.state.ledger.visits else ("shell", {}) for p in range(asked)]
        uses = [j.use(known, name=name, **arguments) for known, (name, arguments) in zip(ids, named, strict=True)]
        stop = "tool_use" if asked else ("end_turn", "max_tokens", "refusal")[n % 3]
        said = [BLOCKS[(n + position) % len(BLOCKS)] for position in range(n % 3)]
        self.write(j.turn(number, *said, *uses, seen=self.seen, stop_reason=stop))
        self.seen = None
        if n == 63:
            self._crash(n)  # between the turn and its batch
        elif asked:
            effects = ("read", "write", "unknown")
            calls = [j.call(f"t{number}c{p}", known, effects[(n + p) % 3]) for p, known in enumerate(ids, 1)]
            for call, (name, arguments) in zip(calls, named, strict=True):
                call |= {"name": name, "arguments": arguments}
            self.write(j.batch(number, *calls))

    def _start(self, n: int) -> None:
        step = self._next()
        if isinstance(step, RunCalls):
            for call in step.start[: 1 + n % 3]:
                edited = step.edited.get(call.call_id)
                self.write(j.handed_over(call.call_id) | ({} if edited is None else {"arguments": edited}))

    def _write(self, n: int) -> None:
        """Write what is to be written, or die after the beginning of it."""
        step = self._next()
        if isinstance(step, Write):
            for record in step.records[: n % 4 if n >= 48 else None]:
                self.write(record.to_json())
            if n >= 48:
                self._die()
        elif isinstance(step, Park):
            records = [step.question, RunParked(by="daemon", reason=step.reason, needs=step.needs)]
            for record in filter(None, records):
                self.write(record.to_json())

    def _reply(self, n: int) -> None:
        """Somebody answers one of the open questions; the same word may mean nothing to another kind."""
        questions = self.state.open_questions
        if questions:
            question = questions[n % len(questions)]
            answer = ANSWERS[n % len(ANSWERS)]
            if question.kind == "restart":
                answer = {"decision": ("resume", "stop")[n % 2]}
            elif question.kind == "ask":
                answer = {"value": "because"}
            self.write(j.answered(question.interaction_id, answer))

    def _expire(self, n: int) -> None:
        questions = self.state.open_questions
        if questions and self.state.status == "active":
            self.write(j.closed(questions[n % len(questions)].interaction_id))

    def _finish(self, n: int) -> None:
        running = [call for call in self.state.open_calls if call.started]
        if running:
            ends: Json = {"ends_run": ("completed", "failed")[n % 2]} if n % 9 == 0 else {}
            outcome = ("ok", "ok", "error", "timeout")[n % 4]
            call = running[n % len(running)]
            if call.name == "transition" and self.state.stage and self.state.stage.next:
                ends = {"moves_to": self.state.stage.next[n % len(self.state.stage.next)]}
            self.write(j.done(call.call_id, f"result {n}" if n % 5 else "", outcome, **ends))

    def _late(self, n: int) -> None:
        settled = [call for call in self.state.calls if call.outcome is not None]
        if settled:
            self.write(j.done(settled[n % len(settled)].call_id, "late"))

    def _checkpoint(self, n: int) -> None:
        self.write(j.checkpoint(self.state))

    def _control(self, n: int) -> None:
        """Somebody brings a working run to rest, or one that rests back to work."""
        if self.state.status == "active":
            self.write((j.control("RunPaused"), j.parked(), j.control("RunQuarantined"))[n % 3])
        elif self.state.status == "failed" or (n % 2 and self.state.status not in ENDED):
            self.write(j.revived("manual", self.state.revival_attempts + 1))
        elif self.state.status not in ENDED:
            self.write(j.control("RunResumed"))

    def _revive(self, n: int) -> None:
        """Somebody revives the run while no daemon works on it, or the one that does refuses."""
        if self.alive or not self.records:
            return
        state = j.replay(self.data).state
        if revive_refused(state, loss=None, live=False, cap=None) is None:
            self.state, self.dur = state, state.seq
            for record in by_hand(state, "anna"):
                self.write(record.to_json())

    def _cancel(self, n: int) -> None:
        if n % 4 == 0 and self.state.status not in ENDED:
            self.write({"type": "CancelRequested", "by": "me"})

    def _settings(self, n: int) -> None:
        self.write({"type": "SettingsChanged", "by": "me", "limits": {"turns": 20 + n}})

    def _end(self, n: int) -> None:
        step = self._next()
        if isinstance(step, End):
            self.write(j.ended(str(step.status), result=step.result))

    def _drain(self, n: int) -> None:
        if self.state.status == "active":
            running = [call.call_id for call in self.state.open_calls if call.started]
            self.write(j.draining(*running))
        self._die()

    def _crash(self, n: int) -> None:
        self._die()

    def _power(self, n: int) -> None:
        """Lose what was not durable, from some record on; the machine starts anew."""
        kept = self.dur + n % (self.state.seq - self.dur + 1)
        del self.records[kept:]
        self.boot += 1
        self._die()

    def _die(self) -> None:
        self.alive, self.seen = False, None

    def _boot(self, n: int) -> None:
        if self.alive:
            return
        if not self.records:
            on_restart = {15: "stop", 13: "ask", 12: "ask", 11: "ask"}.get(n % 16, "resume")
            self.write(j.started(on_restart=on_restart, agent=STAGED if n % 2 else {"model": "m"}))
        self.state = j.replay(self.data).state
        self.dur = self.state.seq
        self.alive = True
        decided = plan(self.state, evidence(self.state, n, self.policy), self.policy)
        self.recover(decided, dies_after=n % 8 if n >= 48 else 99)

    @property
    def policy(self) -> Policy:
        return Policy(boot_id=f"boot-{self.boot}", max_revivals=6)

    def recover(self, decided: RecoveryPlan, dies_after: int = 99) -> None:
        """Write what the plan says, or only the beginning of it."""
        for record in recovery_records(self.state, decided, self.policy.boot_id)[:dies_after]:
            self.write(record)
        if dies_after < 99:
            self._die()


def recovery_records(state: RunState, decided: RecoveryPlan, boot_id: str) -> list[Json]:
    """Return the records that carry a plan out, in the order of the design."""
    if decided.verdict == "leave":
        return []
    records = [j.claimed(boot_id, state.claims + 1)]
    written: list[Record | None] = [decided.revived, *decided.settlements]
    records += [record.to_json() for record in written if record is not None]
    if decided.notice is not None:
        attempt = state.revival_attempts + (decided.revived is not None)
        records.append(j.said(decided.notice, f"revival-{attempt}", "revival"))
    if decided.ended is not None:
        records.append(decided.ended.to_json())
    if decided.verdict == "ask" and not any(q.kind == "restart" for q in state.open_questions):
        number, revival = len(state.interactions) + 1, {"revival": state.revival_attempts + 1}
        records.append(j.opened(f"q{number}", "restart", revival))
    verdict = {"park": j.parked("damaged"), "quarantine": j.control("RunQuarantined"), "stop": j.control("RunPaused")}
    if decided.verdict in verdict:
        records.append(verdict[decided.verdict])
    return records


def as_line(record: Json) -> bytes:
    return j.line(record, seq=record["seq"], dur=record["dur"])


def evidence(state: RunState, n: int, policy: Policy) -> dict[str, Evidence]:
    """Return what the world may show of each unsettled call; nothing of those that were never handed over."""
    turn = state.turn
    calls = unbatched_calls(turn) if turn and turn.asks and not turn.batch else state.open_calls
    return {call.call_id: _found(call.call_id, n + at, policy) for at, call in enumerate(calls) if call.started}


def _found(call_id: str, n: int, policy: Policy) -> Evidence:
    found = list(Found)[n % len(Found)]
    real = ToolCallDone(
        call_id=call_id, outcome=Outcome.OK, result="real", is_error=False, settled_by=SettledBy.TOOL, duration_s=1.0
    )
    boot_id = policy.boot_id if n % 2 else None
    return Evidence(found=found, done=real if found is Found.RESULT else None, boot_id=boot_id)


@st.composite
def histories(draw: st.DrawFn) -> Daemon:
    """Return a daemon after a life, or many."""
    daemon = Daemon()
    daemon.act("boot", draw(st.integers(0, 15)))
    for move, n in draw(moves):
        daemon.act(move, n)
    return daemon
