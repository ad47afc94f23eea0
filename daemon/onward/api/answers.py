"""What the endpoints share: JSON answers, and who asks."""

import os
import pwd
from collections.abc import Callable
from typing import Any

import orjson
from fastapi import Request
from starlette.responses import Response


def answer(value: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return `value` as JSON."""
    return Response(orjson.dumps(value), status, headers, media_type="application/json")


def principals() -> Callable[[Request], Any]:
    """Only our own user and root get here (see `server`); their names are looked up once, not on the loop."""
    own = os.getuid()
    names = {0: "root", own: _user_name(own)}

    async def principal(request: Request) -> str:
        uid = getattr(request.state, "peer_uid", own)
        return names.get(uid, f"uid {uid}")

    return principal


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"
