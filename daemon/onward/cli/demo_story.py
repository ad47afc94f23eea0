"""The demo's script, and what its journal has to say in the end. Pure."""

from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

LINES = ("one", "two", "three", "four", "five")

RAN = "ran once"
FOUND = "went on while no daemon lived; the next daemon took its real result"
INTERRUPTED = "killed with the daemon: interrupted, outcome unknown, not retried"
NEVER = "never started, and the model was told so"

EXPECTED = {
    "t1c1": RAN,
    "t1c2": FOUND,
    "t1c3": NEVER,
    "t2c1": RAN,
    "t2c2": INTERRUPTED,
    "t2c3": NEVER,
    "t3c1": RAN,
    "t4c1": RAN,
    "t5c1": RAN,
}


def _shell(command: str) -> Json:
    return {"name": "shell", "arguments": {"command": command}}


def _append(word: str) -> Json:
    return _shell(f"echo {word} >> effects.txt")


SCRIPT: Json = {
    "turns": [
        {
            "text": "Three lines to write, one after the other.",
            "calls": [
                _append("one"),
                _shell("touch began-two; sleep 2; echo two >> effects.txt"),
                _append("three"),
            ],
        },
        [
            {
                "when": "[error] not started",
                "text": "The first two are written; the third call never started, so I ask for it again, and go on.",
                "calls": [
                    _append("three"),
                    _shell("echo four >> effects.txt; touch began-four; sleep 60"),
                    _append("five"),
                ],
            },
            {"text": "Nothing was interrupted: this is not what the demo wants to show."},
        ],
        [
            {
                "when": "[error] interrupted",
                "text": "One call was interrupted: nobody knows whether it took effect. I look before I repeat it.",
                "calls": [_shell("cat effects.txt")],
            },
            {"text": "Nothing was interrupted: this is not what the demo wants to show."},
        ],
        [
            {
                "when": "four",
                "text": "It did take effect. Only the call that never started is left.",
                "calls": [_append("five")],
            },
            {"text": "The file does not hold what it should."},
        ],
        {
            "text": "Everything is written.",
            "calls": [{"name": "finish", "arguments": {"result": "effects.txt holds five lines, each once."}}],
        },
    ]
}


@dataclass(slots=True)
class Story:
    """What the records tell; `add` them in order."""

    seqs: list[int] = field(default_factory=list)
    commands: dict[str, str] = field(default_factory=dict)
    started: dict[str, int] = field(default_factory=dict)
    done: dict[str, Json] = field(default_factory=dict)
    results: int = 0
    claims: list[int] = field(default_factory=list)

    def add(self, record: Json) -> None:
        self.seqs.append(record["seq"])
        match record["type"]:
            case "ToolBatch":
                for call in record["calls"]:
                    self.commands[call["call_id"]] = str(call["arguments"].get("command", call["name"]))
            case "ToolCallStarted":
                self.started[record["call_id"]] = record["seq"]
            case "ToolCallDone":
                self.results += 1
                self.done.setdefault(record["call_id"], record)
            case "RunClaimed":
                self.claims.append(record["seq"])

    def fates(self) -> list[tuple[str, str, str]]:
        """Return (call id, command, what became of it) for every call that was asked for."""
        return [(call_id, command, self._fate(call_id)) for call_id, command in self.commands.items()]

    def _fate(self, call_id: str) -> str:
        done = self.done.get(call_id)
        if done is None:
            return "without a result"
        started = self.started.get(call_id)
        if started is None:
            return NEVER if done["outcome"] == "not_started" else f"{done['outcome']} without a start"
        if done["outcome"] == "ok":
            return FOUND if any(started < claim < done["seq"] for claim in self.claims) else RAN
        return INTERRUPTED if done["outcome"] == "interrupted" else str(done["outcome"])

    def wrong(self, status: str, effects: str) -> list[str]:
        """Return what is not as promised, given how the run stands and what effects.txt holds."""
        wrong = []
        if status != "completed":
            wrong.append(f"the run is {status}")
        if effects.split() != list(LINES):
            wrong.append(f"effects.txt holds {effects.split()}")
        if self.seqs != list(range(1, len(self.seqs) + 1)):
            wrong.append(f"records were lost or doubled on the way here: {self.seqs}")
        if self.results != len(self.done):
            wrong.append("a call has two results")
        fates = {call_id: fate for call_id, _, fate in self.fates()}
        if fates != EXPECTED:
            wrong.append(f"the calls' fates are {fates}")
        return wrong
