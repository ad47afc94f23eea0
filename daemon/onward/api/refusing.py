"""What a daemon serves that cannot get at its runs yet: the reason."""

from collections.abc import Callable

import orjson
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from onward.api.problems import problem
from onward.errors import Unreachable


def refusing_app(why: Callable[[], str]) -> ASGIApp:
    """Return an app that answers /healthz, and everything else with 503 and the reason."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        if scope["path"] == "/healthz":
            answer = Response(orjson.dumps({"ok": True}), media_type="application/json")
        else:
            answer = problem(Unreachable(f"the daemon waits for its disk: {why()}"))
        await answer(scope, receive, send)

    return app
