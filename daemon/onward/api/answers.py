"""What the endpoints share: JSON answers, and who asks."""

import os
from collections.abc import Callable
from typing import Any

import orjson
from fastapi import Request
from starlette.responses import Response

from onward.processes.users import user_name


def answer(value: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return `value` as JSON."""
    return Response(orjson.dumps(value), status, headers, media_type="application/json")


def principals() -> Callable[[Request], Any]:
    """Only our own user and root get here (see `server`); their names are looked up once, not on the loop."""
    own = os.getuid()
    names = {0: "root", own: user_name(own)}

    async def principal(request: Request) -> str:
        uid = getattr(request.state, "peer_uid", own)
        return names.get(uid, f"uid {uid}")

    return principal
