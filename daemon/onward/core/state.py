"""The folded state of a run: everything that its journal says, and nothing else. Pure.

It changes only through `fold.apply`, so that a live run and a replayed one are the same by construction.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any

from onward.core.conversation import CallState, Conversation, Turn
from onward.core.interactions import Interaction
from onward.core.stages import MCP_PREFIX, TRANSITION, Ledger, Stage, Visit, stages_of
from onward.core.status import TERMINAL, Phase, Status


@dataclass(slots=True, kw_only=True)
class Totals:
    """What the run has used so far."""

    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: float = 0.0
    tool_calls: int = 0
    revivals: int = 0
    active_s: float = 0.0


@dataclass(slots=True, kw_only=True)
class Damage:
    """One damaged place of the journal: `offset` in bytes, what is wrong, and whether the run went on knowing."""

    offset: int
    what: str


@dataclass(slots=True, kw_only=True)
class RunState:
    """One run. Times are the journal's UTC strings."""

    run_id: str = ""
    kind: str = "native"
    agent: dict[str, Any] = field(default_factory=dict)
    agent_name: str = ""
    agent_hash: str = ""
    task: str = ""
    workspace: str = ""
    limits: dict[str, Any] = field(default_factory=dict)
    by: str = ""
    on_restart: str = "resume"
    version: str = ""
    model: str | None = None
    parent: str | None = None
    depth: int = 0
    idempotency_key: str | None = None
    workspace_is_mount: bool = False
    created_at: str = ""
    updated_at: str = ""
    last_progress_at: str = ""

    seq: int = 0
    status: Status = Status.ACTIVE
    reason: str | None = None
    needs: str | None = None
    retry_at: str | None = None
    result: str | None = None

    conversation: Conversation = field(default_factory=Conversation)
    turns: int = 0
    turn_seq: int = 0
    """Seq of the newest AssistantTurn; 0 before the first."""
    inferring: bool = False
    estimate: dict[str, Any] | None = None
    """What the open model request is charged if its end is never known."""
    cooling: dict[str, str] = field(default_factory=dict)
    """Models that failed, and until when they are not asked."""
    cooling_since: dict[str, str] = field(default_factory=dict)
    """When that was written, for each of them; `parked_at` is when `retry_at` was."""
    parked_at: str = ""
    last_failure: str | None = None
    cancel_by: str | None = None
    """Who asked for the run to be cancelled."""
    attempts: int = 0
    """Model requests since the newest turn; `failures` of them failed."""
    failures: int = 0

    fruitless: int = 0
    """Turns in a row that brought nothing, since somebody spoke to the run or resumed it; see `core.fruitless`."""

    repeated: int = 0
    """Turns in a row that asked again for calls that had just failed, since then."""

    claim: dict[str, Any] | None = None
    claims: int = 0
    drained: bool = False
    """At rest since the newest claim (drained, paused, parked or ended): its daemon's end interrupted nothing."""
    in_flight: list[str] = field(default_factory=list)
    revival_attempts: int = 0
    charged_revivals: int = 0
    stalled_revivals: int = 0
    rebooted: bool = False
    """The machine restarted under the working run, and the run has not thought since."""
    revived_by_hand: bool = False
    """A human revived it, and nothing has begun since: the next entry is that revival."""
    untold: bool = False
    """It was put aside at an interruption, before it could be told of it."""
    told: bool = False
    """A revival notice was added and the run has not thought since."""

    ledger: Ledger = field(default_factory=Ledger)
    interactions: dict[str, Interaction] = field(default_factory=dict)
    grants: list[dict[str, Any]] = field(default_factory=list)

    totals: Totals = field(default_factory=Totals)
    damage: list[Damage] = field(default_factory=list)
    gap_since_turn: bool = False
    hand_written: int = 0
    messages: dict[str, str] = field(default_factory=dict)
    """Message ids, and a mark of what was said, so that a repeated one is known again."""

    @property
    def turn(self) -> Turn | None:
        return self.conversation.turn

    @property
    def stage(self) -> Stage | None:
        """The stage the run is in, as its pinned definition has it."""
        visit = self.ledger.now
        return stages_of(self.agent).get(visit.stage) if visit else None

    @property
    def tools(self) -> list[str]:
        """The names of the tools that the run has now."""
        stage = self.stage
        own = self.agent.get("tools")
        names = list(stage.tools if stage and stage.tools is not None else own if isinstance(own, list) else [])
        return [*names, TRANSITION] if stage and stage.next and TRANSITION not in names else names

    def reruns(self, call: CallState) -> bool:
        """Whether an interrupted call is simply done again: our own reads, where the definition says so."""
        own_read = call.effect == "read" and not call.name.startswith(MCP_PREFIX)
        return own_read and self.agent.get("rerun_reads") is True

    def allows(self, tool: str) -> bool:
        """Whether the run has a tool now."""
        return bool(self.allowed((tool,)))

    def allowed(self, tools: Iterable[str]) -> list[str]:
        """Return those tools that the run has now; MCP servers' are in every stage that does not list its own tools."""
        stage, own = self.stage, self.tools
        from_servers = stage is None or stage.tools is None
        return [tool for tool in tools if tool in own or (from_servers and tool.startswith(MCP_PREFIX))]

    @property
    def open_questions(self) -> list[Interaction]:
        """Those that can be answered: of a run that is over, or is to be cancelled, none."""
        if self.status in TERMINAL or self.cancel_by is not None:
            return []
        return [question for question in self.interactions.values() if question.is_open]

    @property
    def chain(self) -> list[str]:
        """The models that may be asked, the preferred one first."""
        fallback = self.agent.get("fallback")
        others = fallback if isinstance(fallback, list) else []
        stage = self.stage
        own = (stage.model if stage else None) or self.model or ""
        return [own, *(model for model in others if isinstance(model, str))]

    @property
    def calls(self) -> list[CallState]:
        """The calls of the newest turn, in model order; empty when it has none (or no ToolBatch)."""
        return self.conversation.turn.calls if self.conversation.turn else []

    @property
    def open_calls(self) -> list[CallState]:
        return [call for call in self.calls if call.outcome is None]

    @property
    def finish(self) -> CallState | None:
        """The call that asked for the end of the run, while nothing was said since its turn's request."""
        if self.conversation.pending:
            return None
        return next((call for call in self.calls if call.ends_run and call.outcome == "ok"), None)

    @property
    def phase(self) -> Phase:
        if self.open_calls:
            return Phase.RUNNING_TOOLS
        return Phase.INFERRING if self.inferring else Phase.READY_TO_INFER

    def to_json(self) -> dict[str, Any]:
        """Return the whole state for a Checkpoint. It shares its parts with the state: encode it before it changes."""
        state = {f.name: getattr(self, f.name) for f in fields(self)}
        talk = {f.name: getattr(self.conversation, f.name) for f in fields(self.conversation)}
        state["ledger"] = self.ledger.visits
        state["conversation"] = {**talk, "used_ids": sorted(self.conversation.used_ids)}
        return state

    @classmethod
    def from_json(cls, state: dict[str, Any]) -> "RunState":
        """Return the state that `to_json` gave.

        Raises:
            KeyError, TypeError, ValueError: It is not such a state.
        """
        known = {f.name for f in fields(cls)}
        if set(state) != known:
            raise ValueError(f"checkpoint holds other members: {sorted(known.symmetric_difference(state))}")
        parts = dict(state)
        talk = parts["conversation"]
        turn = talk["turn"]
        if turn is not None:
            turn = Turn(**{**turn, "calls": [CallState(**call) for call in turn["calls"]]})
        parts["conversation"] = Conversation(
            closed=talk["closed"],
            turn=turn,
            pending=[(seq, text) for seq, text in talk["pending"]],
            used_ids=set(talk["used_ids"]),
            size_bytes=talk["size_bytes"],
            thinking=talk["thinking"],
        )
        parts["ledger"] = Ledger([Visit(**visit) for visit in parts["ledger"]])
        parts["interactions"] = {name: Interaction(**item) for name, item in parts["interactions"].items()}
        parts["status"] = Status(parts["status"])
        parts["totals"] = Totals(**parts["totals"])
        parts["damage"] = [Damage(**item) for item in parts["damage"]]
        return cls(**parts)
