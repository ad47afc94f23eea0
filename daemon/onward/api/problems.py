"""Errors as problem details (RFC 9457): every answer that is no success is made here, from an OnwardError."""

import orjson
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from onward.core.text import clean
from onward.errors import BadRequest, NotFound, OnwardError

MEDIA_TYPE = "application/problem+json"


class TooLarge(BadRequest):
    """The request is larger than the daemon takes; nothing was changed."""

    code = "too-large"
    http_status = 413


class NotAllowed(BadRequest):
    """This path does not know the method."""

    code = "method-not-allowed"
    http_status = 405


class Busy(OnwardError):
    """As much is open as the daemon serves at once; try again later."""

    code = "busy"
    http_status = 429


class Bug(OnwardError):
    """Something is wrong in Onward itself; the daemon's log says more."""

    code = "internal"


def problem(error: Exception) -> Response:
    """Return the answer to a request that failed with `error`, whatever it is."""
    told = _as_told(error)
    members: dict[str, object] = {
        "type": f"urn:onward:problem:{told.code}",
        "title": (type(told).__doc__ or "").partition("\n")[0],
        "status": told.http_status,
        "detail": clean(str(told)),
        "code": told.code,
    }
    if isinstance(error, RequestValidationError):
        members["errors"] = [{"at": at, "what": what} for at, what in _wrong_members(error)]
    return Response(orjson.dumps(members), told.http_status, media_type=MEDIA_TYPE)


def _as_told(error: Exception) -> OnwardError:
    if isinstance(error, OnwardError):
        return error
    if isinstance(error, RequestValidationError):
        return BadRequest("; ".join(f"{at}: {what}" for at, what in _wrong_members(error)))
    if isinstance(error, HTTPException):
        known: dict[int, type[OnwardError]] = {404: NotFound, 405: NotAllowed}
        return known.get(error.status_code, BadRequest)(error.detail)
    # What a bug says may hold anything; it belongs into the log, not to the client.
    return Bug("a bug in Onward; its log says more")


def _wrong_members(error: RequestValidationError) -> list[tuple[str, str]]:
    return [(clean(".".join(map(str, item["loc"]))), clean(item["msg"])) for item in error.errors()]
