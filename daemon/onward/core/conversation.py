"""The provider view: the one place where the messages of a model request are made. Pure.

Whatever the journal holds, damaged or not, the messages obey the rules every provider enforces: each `tool_use` is
answered in the very next message, exactly once, under a non-empty id that is unique in the request; no block and no
message is empty; the first message is the user's and roles alternate; thinking is left out where it is unsigned or
another model's; arguments are JSON objects. Blocks have the shape of Anthropic's Messages API; adapters translate.
"""

import re
from dataclasses import dataclass, field
from typing import Any

import orjson

from onward.core.ids import make_call_id
from onward.core.masking import MARK

Block = dict[str, Any]
ProviderMessage = dict[str, Any]

INTERRUPTED = (
    "[error] interrupted: the previous session ended while this call was in flight. Whether it took effect is unknown. "
    "It has NOT been retried. Verify the state of what it was changing before assuming either way; a file may be half "
    "written."
)
NOT_STARTED = (
    "[error] not started: the previous session ended before this call was handed over. It did not run and had no "
    "effect; it is safe to ask for it again."
)
NO_OUTPUT = "(no output)"
GO_ON = "Go on."

_OTHERS_ID = re.compile(r"(?!t[0-9]+c[0-9]+\Z)[A-Za-z0-9_-]{1,64}")
"""An id that every provider takes, and that is none of ours."""

_THINKING = ("thinking", "redacted_thinking")


@dataclass(slots=True, kw_only=True)
class CallState:
    """One call of the newest batch. `outcome` None: not settled. `boot_id`: of the boot in which it was handed over."""

    call_id: str
    provider_id: str
    name: str
    arguments: dict[str, Any] | str
    effect: str
    started: bool = False
    boot_id: str | None = None
    outcome: str | None = None
    result: str = ""
    is_error: bool = False
    ends_run: str | None = None
    moves_to: str | None = None
    edited: dict[str, Any] | None = None
    """The arguments it ran with, where a human changed them; the model's own stay in the conversation."""


@dataclass(slots=True, kw_only=True)
class Turn:
    """The newest assistant turn and its calls. `batch`: its ToolBatch was read, so its calls could have started."""

    turn: int
    seen: int
    content: list[Block]
    stop_reason: str
    calls: list[CallState] = field(default_factory=list)
    provider: str = ""
    model: str = ""
    batch: bool = False
    gap: bool = False
    """A damaged place of the journal lies in this turn: what is absent proves nothing."""

    @property
    def asks(self) -> int:
        """How many tools it asks for."""
        return len(self.calls) or sum(1 for block in self.content if block.get("type") == "tool_use")


@dataclass(slots=True)
class Conversation:
    """All that was said. Only the newest turn can still change: `closed` holds the provider's messages before it."""

    closed: list[ProviderMessage] = field(default_factory=list)
    turn: Turn | None = None
    pending: list[tuple[int, str]] = field(default_factory=list)
    """(seq, text) of messages that stand after the newest turn, or that no turn has seen yet."""
    used_ids: set[str] = field(default_factory=set)
    size_bytes: int = 0
    """Text in the messages so far: what a token estimate is made of."""
    thinking: dict[str, list[int]] = field(default_factory=dict)
    """Which closed messages hold thinking, by `PROVIDER/MODEL` that thought it: no other model may be sent it."""

    def add_message(self, seq: int, text: str) -> None:
        if text.strip():
            self.pending.append((seq, text))
            self.size_bytes += len(text)

    def add_turn(self, turn: Turn) -> None:
        """Take a new turn: what it has seen goes above it, the rest below."""
        self._close([text for seq, text in self.pending if seq <= turn.seen])
        self.pending = [(seq, text) for seq, text in self.pending if seq > turn.seen]
        self.turn = turn
        self.size_bytes += sum(map(_length, turn.content))

    def unseen(self) -> bool:
        """Whether something was said that the newest turn does not know."""
        return bool(self.pending)

    def request(self, provider: str | None = None, model: str | None = None) -> list[ProviderMessage]:
        """Return the messages of the next model request. The list is the caller's, its members are shared.

        Args:
            provider: Who is asked; thinking of another provider or model is left out. None: everything is kept.
            model: The model that is asked.
        """
        messages = list(self.closed)
        asked = None if provider is None else f"{provider}/{model}"
        for origin, places in self.thinking.items():
            if asked not in (None, origin):
                for place in places:
                    messages[place] = _without_thinking(messages[place])
        self._write_tail(messages, [text for _, text in self.pending], asked)
        if not messages or messages[-1]["role"] == "assistant":
            messages.append({"role": "user", "content": [_text(GO_ON)]})
        return messages

    def _close(self, said: list[str]) -> None:
        before = len(self.closed)
        self.used_ids.update(self._write_tail(self.closed, said))
        if self.turn is not None:
            places = [at for at in range(before, len(self.closed)) if _thinks(self.closed[at])]
            if places:
                self.thinking.setdefault(_origin(self.turn), []).extend(places)

    def _write_tail(self, messages: list[ProviderMessage], said: list[str], asked: str | None = None) -> list[str]:
        """Append the newest turn and what was said after it; returns the ids that its calls have in the request."""
        ids: list[str] = []
        if self.turn is not None:
            content, results, ids = render(self.turn, self.used_ids)
            if content:
                _add(messages, "assistant", content)
                if asked not in (None, _origin(self.turn)):
                    messages[-1] = _without_thinking(messages[-1])
            if results:
                _add(messages, "user", results)
        for text in said:
            _add(messages, "user", [_text(text)])
        return ids


def _length(block: Block) -> int:
    text = block.get("text")
    return len(text) if isinstance(text, str) else len(orjson.dumps(block))


def render(turn: Turn, used_ids: set[str]) -> tuple[list[Block], list[Block], list[str]]:
    """Return a turn's own blocks, the blocks that answer its calls, and the ids that tie them."""
    calls = turn.calls or calls_of(turn)
    ids = _view_ids(calls, used_ids)
    uses = list(map(_tool_use, calls, ids))
    content: list[Block] = []
    placed = 0
    for block in turn.content:
        if block.get("type") != "tool_use":
            if _is_sendable(block):
                content.append(_as_signed(block))
        elif placed < len(uses):
            content.append(uses[placed])
            placed += 1
    content += uses[placed:]
    if not uses and all(block["type"] in _THINKING for block in content):
        return [], [], []
    return content, list(map(_tool_result, calls, ids)), ids


def calls_of(turn: Turn) -> list[CallState]:
    """Return the calls that a turn without ToolBatch asked for: nothing of them can have started, but for a gap."""
    asked = [block for block in turn.content if block.get("type") == "tool_use"]
    return [
        CallState(
            call_id=make_call_id(turn.turn, position),
            provider_id=str(block.get("id") or ""),
            name=str(block.get("name") or "unknown"),
            arguments=block["input"] if isinstance(block.get("input"), dict) else {},
            effect="unknown",
            outcome="interrupted" if turn.gap else "not_started",
            result=INTERRUPTED if turn.gap else NOT_STARTED,
            is_error=True,
        )
        for position, block in enumerate(asked, 1)
    ]


def edit_of(call: CallState) -> str:
    """Return what the model is told where a human changed the arguments of its call."""
    return f"[a human changed the arguments: {orjson.dumps(call.edited).decode()}]"


def _view_ids(calls: list[CallState], used_ids: set[str]) -> list[str]:
    """Return the id each call has in requests: the provider's where it is fit and new, else Onward's own."""
    ids: list[str] = []
    for call in calls:
        view_id = call.provider_id if _OTHERS_ID.fullmatch(call.provider_id) else call.call_id
        if view_id in used_ids or view_id in ids:
            view_id = call.call_id
        while view_id in used_ids or view_id in ids:  # only in a damaged journal that holds a turn twice
            view_id += "x"
        ids.append(view_id)
    return ids


def _is_sendable(block: Block) -> bool:
    kind = block.get("type")
    if kind == "text":
        return _has_text(block.get("text"))
    if kind == "thinking":
        signed = isinstance(block.get("thinking"), str) and _has_text(block.get("signature"))
        # Signed text that a secret was masked in is no longer what was signed. Old journals do not tell which.
        return signed and not block.get("masked", MARK in str(block))
    return kind == "redacted_thinking" and _has_text(block.get("data"))


def _as_signed(block: Block) -> Block:
    """Return a block as the provider gave it."""
    return {name: item for name, item in block.items() if name != "masked"} if "masked" in block else block


def _has_text(value: object) -> bool:
    return isinstance(value, str) and not (value.isspace() or not value)


def _thinks(message: ProviderMessage) -> bool:
    return any(block["type"] in _THINKING for block in message["content"])


def _without_thinking(message: ProviderMessage) -> ProviderMessage:
    """Return a message without its thinking; `render` lets no message be nothing else."""
    kept = [block for block in message["content"] if block["type"] not in _THINKING]
    return {"role": message["role"], "content": kept}


def _origin(turn: Turn) -> str:
    return f"{turn.provider}/{turn.model}"


def _tool_use(call: CallState, view_id: str) -> Block:
    arguments = call.arguments if isinstance(call.arguments, dict) else {}
    return {"type": "tool_use", "id": view_id, "name": call.name or "unknown", "input": arguments}


def _tool_result(call: CallState, view_id: str) -> Block:
    text, is_error = (call.result, call.is_error) if call.outcome else (INTERRUPTED, True)
    block: Block = {"type": "tool_result", "tool_use_id": view_id, "content": text if text.strip() else NO_OUTPUT}
    if is_error:
        block["is_error"] = True
    return block


def _text(text: str) -> Block:
    return {"type": "text", "text": text}


def _add(messages: list[ProviderMessage], role: str, blocks: list[Block]) -> None:
    """Append blocks so that the user speaks first and roles alternate."""
    if role == "assistant" and (not messages or messages[-1]["role"] == "assistant"):
        messages.append({"role": "user", "content": [_text(GO_ON)]})
    if messages and messages[-1]["role"] == role:
        messages[-1] = {"role": role, "content": [*messages[-1]["content"], *blocks]}
    else:
        messages.append({"role": role, "content": blocks})
