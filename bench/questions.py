"""Runs that wait for a human: what they weigh in the daemon's memory, and how long an answer takes.

The runs are as a daemon leaves them: folded, with an index and the list of open questions. An answer is a request over
the socket, timed from its first byte to the reply: the journal is opened, the answer made durable.
"""

import http.client
import json
import shutil
import socket
import statistics
import sys
import time
from pathlib import Path

import orjson

from bench.common import Json, fresh_dir, quiet, row, rss_kib, show
from bench.startup import daemon, ready
from bench.w2 import beginning, step_of, write, write_index
from onward.core import records as r
from onward.core.index import questions_of
from onward.core.step import Write, next_step
from onward.core.vocabulary import Effect

TS = "2026-01-01T00:00:00.000000Z"
STEPS = 5
"""Turns with calls and results before the one that asks."""
AT_REST_S = 2.0
"""Seconds after which the memory of a daemon that was just started is looked at."""


class Connection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=60)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self.path))


def asking(turn: int) -> list[r.Record]:
    """The records of a turn that asks a human."""
    arguments: Json = {"question": "Which of the two ways shall I take? " * 8}
    call = r.Call(call_id=f"t{turn}c1", provider_id="x", name="ask_user", arguments=arguments, effect=Effect.READ)
    content: list[Json] = [{"type": "tool_use", "id": "x", "name": "ask_user", "input": arguments}]
    return [
        r.AssistantTurn(
            turn=turn,
            seen=turn,
            content=content,
            stop_reason="tool_use",
            usage={"input_tokens": 9, "output_tokens": 9},
            cost_usd=0.0,
            provider="scripted",
            model="x",
            active_s=1.0,
        ),
        r.ToolBatch(turn=turn, calls=[call.to_json()]),
    ]


def build(home: Path, count: int) -> None:
    """Make runs that wait for an answer; what the model says after it comes from a script."""
    (home / "script.json").write_text(
        json.dumps({"turns": [{"text": "again", "repeat": STEPS + 1}, {"text": "Done."}]})
    )
    for number in range(count):
        run_id = f"bench-{number:06}"
        journal = beginning(run_id, home)
        for step in range(1, STEPS + 1):
            journal += step_of(step, 1, 1)
        journal[0] = r.RunStarted(
            **{name: value for name, value in journal[0].to_json().items() if name not in ("type", "agent", "model")},
            agent={"tools": ["ask_user"], "system_prompt": "x" * 800},
            model=f"scripted/{home / 'script.json'}",
        )
        journal += asking(STEPS + 1)
        directory, data, state = write(home, run_id, journal)
        opened = next_step(state, now=TS, active_s=0.0, workers=1)
        assert isinstance(opened, Write)
        shutil.rmtree(directory)
        directory, data, state = write(home, run_id, [*journal, *opened.records])
        write_index(directory, state, state.seq, len(data))
        position = {"seq": state.seq, "bytes": len(data), "checkpoint_offset": None}
        listed = {"run_id": run_id, "journal": position, "interactions": questions_of(state)}
        (directory / "interactions.json").write_bytes(orjson.dumps(listed))


def rests_at_mib(home: Path) -> float:
    """Return the memory of a daemon that was just started, in MiB."""
    quiet()
    with daemon(home) as process:
        ready(process, home)
        time.sleep(AT_REST_S)
        return rss_kib(process.pid) / 1024


def answered_ms(home: Path, count: int) -> list[float]:
    """Answer one question of each of the first runs, one after the other."""
    took = []
    with daemon(home) as process:
        ready(process, home)
        connection = Connection(home / "onward.sock")
        connection.request("GET", "/v1/interactions")
        waiting = json.loads(connection.getresponse().read())["interactions"]
        body = json.dumps({"answer": {"value": "the second one"}})
        headers = {"content-type": "application/json", "onward-request": "1"}
        for question in waiting[:count]:
            began = time.perf_counter()
            connection.request("POST", f"/v1/interactions/{question['id']}/answer", body, headers)
            answer = connection.getresponse()
            told = answer.read()
            took.append((time.perf_counter() - began) * 1e3)
            assert answer.status == 200, told
        connection.close()
    return took


def main(runs: int = 2000, answers: int = 200) -> None:
    with fresh_dir() as home, fresh_dir() as empty:
        build(home, runs)
        without = statistics.median(rests_at_mib(empty) for _ in range(3))
        with_runs = statistics.median(rests_at_mib(home) for _ in range(3))
        took = sorted(answered_ms(home, answers))
    show(questions=runs, empty_mib=without, waiting_mib=with_runs, slowest_ms=took[-1])
    row(f"{runs:,} runs waiting for a human: MiB more", with_runs - without, at_most=40)
    row("answering one: ms", statistics.median(took), at_most=100, p95=took[int(len(took) * 0.95)])


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
