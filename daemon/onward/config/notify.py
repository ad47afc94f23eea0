"""`[notify]`: how a question reaches a person who is not looking."""

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator


class WebhookSettings(BaseModel):
    """`[notify.webhooks.NAME]`: a URL that is told of each question by POST."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str
    """Where it is sent."""
    secret_env: str = ""
    """The environment variable that holds the secret it is signed with. Empty: not signed."""

    @field_validator("url")
    @classmethod
    def _is_http(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.password:
            raise ValueError("must be an http or https URL without user and password")
        return url


class NotifySettings(BaseModel):
    """`[notify]`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    allow_private: tuple[str, ...] = ()
    """Host names that may lie at private or loopback addresses."""
    hook: tuple[str, ...] = ()
    """A program and its arguments, started for each question with the notification as JSON on its input."""
    timeout_s: Annotated[float, Field(gt=0, le=300, allow_inf_nan=False)] = 20.0
    """How many seconds a delivery may take."""
    webhooks: dict[Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,31}$")], WebhookSettings] = Field(
        default_factory=dict
    )
    """By a name of yours."""
