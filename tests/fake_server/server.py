"""A strict model server on this machine: both APIs, streamed, scripted. It refuses with 400 what breaks a rule."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.fake_server.answers import Answer, Script, refused
from tests.fake_server.rules import anthropic_problems, openai_problems
from tests.fake_server.streams import anthropic_events, openai_chunks

Json = dict[str, Any]

KEY = "sk-fake-7f3a9c51d2"
STALL_S = 60.0
SECRET_HEADERS = ("authorization", "x-api-key")


@dataclass(slots=True, kw_only=True)
class Request:
    """One request as it came, without its key."""

    path: str
    headers: dict[str, str]
    body: Json


@dataclass(slots=True)
class FakeServer:
    """The server's script and what it saw. `problems`: every rule that a request broke."""

    script: Script
    window: int | None = None
    require_key: bool = True
    requests: list[Request] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    issued: dict[str, str] = field(default_factory=dict)
    """Thinking by its signature."""
    stalled: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)
    port: int = 0
    most_at_once: int = 0
    _at_once: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def openai_url(self) -> str:
        return f"{self.url}/v1"

    def answer(self, request: Request, key: str) -> Answer:
        """Note a request, and say what it gets."""
        with self._lock:
            self.requests.append(request)
            if self.require_key and key != KEY:
                return refused(401, "authentication_error", f"invalid x-api-key: {key}")
            if request.path.endswith("/messages"):
                problems = anthropic_problems(request.body, self.issued, self.window)
            else:
                problems = openai_problems(request.body, self.window)
            self.problems += problems
            if problems:
                return refused(400, "invalid_request_error", "; ".join(problems))
            turns = sum(message["role"] == "assistant" for message in request.body["messages"])
            answer = self.script(turns, request.body)
            for block in answer.blocks:
                if block["type"] == "thinking":
                    self.issued[block["signature"]] = block["thinking"]
            return answer

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Count the requests that are answered at the same time."""
        with self._lock:
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            yield
        finally:
            with self._lock:
                self._at_once -= 1


class Handler(BaseHTTPRequestHandler):
    """One connection. `fake` is set by `serving` in a class of its own."""

    protocol_version = "HTTP/1.1"
    fake: FakeServer

    def log_message(self, *args: object) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        key = headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")
        shown = {name: "REDACTED" if name in SECRET_HEADERS else value for name, value in headers.items()}
        try:
            asked = json.loads(body.decode())
        except ValueError:
            self.fake.problems.append("P7: the body is no UTF-8 JSON")
            asked = {"messages": []}
        answer = self.fake.answer(Request(path=self.path, headers=shown, body=asked), key)
        with self.fake.busy(), suppress(BrokenPipeError, ConnectionResetError):
            if answer.status != 200:
                self._refuse(answer)
            else:
                self._stream(answer, asked.get("model", ""))

    def _refuse(self, answer: Answer) -> None:
        data = answer.error.encode() if isinstance(answer.error, str) else json.dumps(answer.error).encode()
        self.send_response(answer.status)
        for name, value in {"Content-Type": "application/json", **answer.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, answer: Answer, model: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        is_anthropic = self.path.endswith("/messages")
        events = answer.events
        if events is None:
            events = list((anthropic_events if is_anthropic else openai_chunks)(answer, model))
        for number, event in enumerate([*events, None]):
            if number == answer.stall_after:
                self.fake.stalled.set()
                self.fake.go_on.wait(STALL_S)
            if number == answer.cut_after:
                self.close_connection = True
                return
            if event is None or number == answer.end_after:
                break
            name = f"event: {event['type']}\n" if is_anthropic else ""
            self._chunk(f"{name}data: {json.dumps(event)}\n\n")
        if not is_anthropic:
            self._chunk("data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def _chunk(self, text: str) -> None:
        data = text.encode()
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128


@contextmanager
def serving(script: Script, **members: Any) -> Iterator[FakeServer]:
    """Serve a script as long as the block lasts."""
    fake = FakeServer(script, **members)
    server = _Server(("127.0.0.1", 0), type("BoundHandler", (Handler,), {"fake": fake}))
    fake.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield fake
    finally:
        fake.go_on.set()
        server.shutdown()
        thread.join()
        server.server_close()
