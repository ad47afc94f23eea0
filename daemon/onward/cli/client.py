"""The client of the API: http.client over the Unix socket. Imported by every verb, so it imports little."""

import http.client
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlencode

from onward import errors
from onward.cli.keeping import keeper_at_work
from onward.cli.terminal import say
from onward.config.places import find_sockets
from onward.errors import OnwardError, Unreachable

TIMEOUT_S = 60.0
SILENCE_S = 45.0
"""Three heartbeats: an event stream that is silent for longer has lost its daemon."""
REFUSED_S = 0.5
GONE_S = 10.0
"""How long a request waits for a daemon that is being restarted: refused at once, or cut off in the middle."""
TRIES = 3
"""It may be killed again while it is being asked again."""
KEPT_S = 15.0
"""How long where a keeper is about to start it: longer than that one waits between two starts."""
_PAUSE_S = 0.05

Json = dict[str, Any]

DOWN = (ConnectionRefusedError, FileNotFoundError)
GONE = (ConnectionResetError, BrokenPipeError, http.client.IncompleteRead, http.client.BadStatusLine)


class NoDaemon(Unreachable):
    """Nobody listens."""


class TimedOut(OnwardError):
    """It did not happen in the time that was given."""

    code = "timeout"
    exit_code = 124


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self.path))


class Client:
    """Speaks to the daemon at one socket. What fails is raised as the error that the daemon meant."""

    def __init__(self, path: Path | None = None, *, timeout_s: float = TIMEOUT_S, kept_s: float = KEPT_S) -> None:
        """`kept_s`: how many seconds to wait for a daemon that its keeper is about to start."""
        self.path = path or find_socket()
        self.timeout_s = timeout_s
        self.kept_s = kept_s

    def get(self, path: str, **query: object) -> Json:
        """Read something; tried again when the daemon is just being restarted.

        Raises:
            OnwardError: As the daemon says; NoDaemon or Unreachable when it says nothing.
        """
        given = {name: value for name, value in query.items() if value is not None}
        return self._request("GET", f"{path}?{urlencode(given)}" if given else path, None, {}, again=True)

    def post(self, path: str, body: Json, *, key: str | None = None, repeatable: bool = False) -> Json:
        """Change something. What is `repeatable`, by itself or by a `key`, is tried again, as reading is.

        Raises:
            OnwardError: As `get`.
        """
        headers = {"content-type": "application/json", "onward-request": "1"}
        if key is not None:
            headers["idempotency-key"] = key
        return self._request("POST", path, json.dumps(body).encode(), headers, again=repeatable or key is not None)

    def runs(self, **query: object) -> Iterator[Json]:
        """Yield all runs, newest first."""
        cursor = None
        while True:
            page = self.get("/v1/runs", cursor=cursor, **query)
            yield from page["runs"]
            cursor = page["next"]
            if cursor is None:
                return

    def records(self, run_id: str, after: int = 0) -> Iterator[Json]:
        """Yield the durable records there are now, with a seq above `after`."""
        at: int | None = after
        while at is not None:
            page = self.get(f"/v1/runs/{run_id}/records", after=at)
            yield from page["records"]
            at = page["next"]

    def stream(
        self, run_id: str, after: int, timeout_s: Callable[[], float], *, deltas: bool = False
    ) -> Iterator[Json | None]:
        """Yield records with a seq above `after` as they come, until the daemon ends the stream.

        None stands for a heartbeat; the first one comes at once.

        Args:
            run_id: The run.
            after: A seq.
            timeout_s: Asked before each wait: how many seconds of silence are taken.
            deltas: Yield `{"delta": text}` too, for pieces of an answer that is being written.

        Raises:
            TimeoutError: It was silent for longer.
            OSError, http.client.HTTPException: The connection broke.
            OnwardError: As the daemon says.
        """
        connection = _Connection(self.path, min(TIMEOUT_S, timeout_s()))
        try:
            path = f"/v1/runs/{run_id}/events{'?deltas=true' if deltas else ''}"
            connection.request("GET", path, headers={"last-event-id": str(after)})
            wire = connection.sock  # the response takes it over
            response = connection.getresponse()
            if response.status != 200:
                _raise_problem(response.status, response.read())
            while True:
                wire.settimeout(timeout_s())
                line = response.readline()
                if not line:
                    return
                if line.startswith(b":"):
                    yield None
                elif line.startswith(b"data: "):
                    yield json.loads(line[6:])
        finally:
            connection.close()

    def _request(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: dict[str, str],
        *,
        again: bool,
        tries: int = TRIES,
    ) -> Json:
        try:
            return self._once(method, path, body, headers)
        except (*DOWN, *GONE) as error:
            may_repeat = again or isinstance(error, DOWN)  # then nobody was reached
            if tries == 1 or not may_repeat or not self._await_daemon(self._patience_s(error)):
                raise self._unreachable(error) from error
        return self._request(method, path, body, headers, again=again, tries=tries - 1)

    def _patience_s(self, error: Exception) -> float:
        if isinstance(error, GONE):
            return GONE_S
        keeper = keeper_at_work(self.path) if self.kept_s else None
        if keeper is not None:
            say(f"waiting for the daemon, which its keeper (pid {keeper.pid}) starts again")
            return self.kept_s
        return 0.0 if isinstance(error, FileNotFoundError) else REFUSED_S

    def _once(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Json:
        connection = _Connection(self.path, self.timeout_s)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            text = response.read()
        except TimeoutError:
            late = "" if method == "GET" else "; what was asked may still be done, as when its disk has space again"
            raise Unreachable(
                f"the daemon at {self.path} does not answer within {self.timeout_s:.0f} s{late}"
            ) from None
        except PermissionError:
            raise Unreachable(f"the daemon at {self.path} belongs to another user") from None
        except (*DOWN, *GONE):
            raise
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(f"the daemon at {self.path} cannot be asked: {error}") from error
        finally:
            connection.close()
        if response.status >= 400:
            _raise_problem(response.status, text)
        answer: Json = json.loads(text)
        return answer

    def is_up(self) -> bool:
        """Say whether somebody listens, without asking anything."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(TIMEOUT_S)
            try:
                probe.connect(str(self.path))
            except (TimeoutError, BlockingIOError):
                return True  # it has more to do than it can take, so it is there
            except OSError:
                return False
            return True

    def _await_daemon(self, patience_s: float) -> bool:
        """Wait until somebody listens; False if nobody does after that time."""
        end = time.monotonic() + patience_s
        while time.monotonic() < end:
            if self.is_up():
                return True
            time.sleep(_PAUSE_S)
        return False

    def _unreachable(self, error: Exception) -> Unreachable:
        keeper = keeper_at_work(self.path) if isinstance(error, DOWN) else None
        if keeper is not None:
            told = (
                f"its keeper (pid {keeper.pid}) starts it again: {keeper.last_end}; ask again, or see `onward status`"
            )
            return NoDaemon(f"no daemon answers at {self.path}; {told}")
        if isinstance(error, DOWN):
            return NoDaemon(f"no daemon answers at {self.path}; `onward up` starts one")
        return Unreachable(f"the daemon at {self.path} went away before it had answered; ask again")


def find_socket() -> Path:
    """Return the socket of the daemon that the environment means, whether or not somebody serves there."""
    candidates = find_sockets()
    return next((path for path in candidates if os.path.exists(path)), candidates[0])


def _raise_problem(status: int, text: bytes) -> NoReturn:
    try:
        problem = json.loads(text)
        code, detail = str(problem["code"]), str(problem["detail"])
    except (ValueError, KeyError, TypeError):
        raise Unreachable(f"what answered (HTTP status {status}) is no Onward daemon") from None
    error = _ERRORS.get(code, Unreachable if code == "busy" else OnwardError)(detail)
    error.code = code  # also one that this client has no class for
    raise error


_ERRORS = {
    kind.code: kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, OnwardError)
}
