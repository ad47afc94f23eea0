"""A definition with stages, checkpoints and rules, what its model says and asks for, and what people answer."""

from tests.core import journals as j
from tests.core.journals import Json

STAGED: Json = {
    "tools": ["shell", "read_file", "ask_user", "finish"],
    "permissions": {"shell": [{"prefix": "rm", "then": "deny"}, {"prefix": "git push", "then": "ask"}]},
    "stages": [
        {"name": "plan", "prompt": "Plan.", "checkpoint": ["approve", "sign"], "next": ["build"]},
        {"name": "build", "checkpoint": ["approve"], "next": ["plan", "verify"], "max_visits": 3, "on_error": "verify"},
        {"name": "verify", "prompt": "Verify.", "on_error": "build", "tools": ["read_file", "ask_user", "finish"]},
    ],
}
ASKED: tuple[tuple[str, Json], ...] = (
    ("shell", {"command": "git push"}),
    ("shell", {"command": "rm x"}),
    ("shell", {"command": "ls"}),
    ("ask_user", {"question": "x?"}),
    ("ask_user", {}),
    ("transition", {"stage": "verify"}),
    ("read_file", {"path": "x"}),
    ("mcp__x", {}),
)
ANSWERS: tuple[Json, ...] = (
    {"decision": "approve"},
    {"decision": "edit", "text": "better"},
    {"decision": "reject", "reason": "no"},
    {"decision": "approve", "arguments": {"command": "git push --dry-run"}},
)
BLOCKS: tuple[Json, ...] = (
    j.text("words with é and 🍕"),
    j.text(" "),
    {"type": "thinking", "thinking": "hm", "signature": "sig"},
    {"type": "thinking", "thinking": "unsigned"},
    {"type": "redacted_thinking", "data": "x"},
    {"type": "x_future"},
)
