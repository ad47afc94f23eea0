"""Every error Onward raises on purpose: one class per reaction that the caller can have.

Each class carries a stable `code` (API problem details, logs), the HTTP status and the exit code of the command line,
so that the three never disagree. The message is for the person who reads it: what happened, to which run, what to do.
"""


class OnwardError(Exception):
    """The root of everything raised on purpose."""

    code = "error"
    http_status = 500
    exit_code = 1


class BadRequest(OnwardError):
    """What was asked makes no sense; nothing was changed."""

    code = "bad-request"
    http_status = 422
    exit_code = 2


class NotFound(OnwardError):
    """There is no such run, agent or file."""

    code = "not-found"
    http_status = 404
    exit_code = 4


class Conflict(OnwardError):
    """It was asked before with another content, or the run's state does not allow it; nothing was changed."""

    code = "conflict"
    http_status = 409
    exit_code = 1


class Refused(OnwardError):
    """Another daemon holds the runs directory, or a rule forbids what was asked."""

    code = "refused"
    http_status = 403
    exit_code = 8


class Unreachable(OnwardError):
    """The daemon does not answer."""

    code = "unreachable"
    http_status = 503
    exit_code = 7


class BadConfiguration(OnwardError):
    """A configuration file, agent definition or environment variable is wrong."""

    code = "bad-configuration"
    http_status = 422
    exit_code = 78


class StoreError(OnwardError):
    """The disk did not take or give what it was asked; what was not written was undone."""

    code = "store"
    http_status = 500


class DiskFull(StoreError):
    """No space; the record was undone and can be appended again when space is back."""

    code = "disk-full"
    http_status = 507


class Unreadable(StoreError):
    """A file is there but cannot be read (permissions, I/O error, not a regular file)."""

    code = "unreadable"


class InternalError(AssertionError):
    """A bug in Onward. Never caught, except where a run is isolated from the others."""


def causes_of(error: BaseException) -> list[BaseException]:
    """Return what a task group gathered, without the groups; an error that is none stands for itself."""
    if isinstance(error, BaseExceptionGroup):
        return [cause for part in error.exceptions for cause in causes_of(part)]
    return [error]
