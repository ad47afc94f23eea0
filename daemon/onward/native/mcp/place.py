"""For whom an MCP server works, and what it is given: its environment, its headers, and the values to keep secret."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onward.core.masking import KnownSecrets
from onward.core.vocabulary import Needs
from onward.errors import OnwardError
from onward.native.calls import tool_environment
from onward.native.mcp.settings import ServerSettings, servers_of
from onward.ports.clock import Clock

CALL_ID = "mcp"
"""What stands for a call id in the markers of a server's process: it belongs to the run, to none of its calls."""


class Unavailable(OnwardError):
    """An MCP server cannot be used now; the run has to wait for what it `needs`."""

    code = "mcp-unavailable"
    http_status = 503

    def __init__(self, needs: Needs, message: str) -> None:
        """Say what is missing, and in the message what to do about it."""
        super().__init__(message)
        self.needs = needs


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The run that servers are started for, and what the daemon has to give."""

    instance: str
    run_id: str
    workspace: Path
    environment: Mapping[str, str] = field(repr=False)
    secrets: KnownSecrets = field(repr=False)
    clock: Clock


def know_values(agent: Mapping[str, Any], environment: Mapping[str, str], secrets: KnownSecrets) -> None:
    """Tell `secrets` what the servers of a pinned definition are given, whether or not they are started."""
    for settings in servers_of(agent):
        for given in (*settings.env_from, *settings.headers_from.values()):
            name = given.rpartition(" ")[2]
            secrets.add(name, environment.get(name, ""))


def server_environment(settings: ServerSettings, place: Place) -> dict[str, str]:
    """Return the whole environment of a server's process: what every command gets, and what the definition names.

    Raises:
        Unavailable: A variable that it names is not set.
    """
    named = {name: _value(settings, place, name, "env_from") for name in settings.env_from}
    common = tool_environment(place.environment, instance=place.instance, run_id=place.run_id)
    return common | {"ONWARD_CALL_ID": CALL_ID} | named


def server_headers(settings: ServerSettings, place: Place) -> dict[str, str]:
    """Return the headers that every request to an endpoint carries.

    Raises:
        Unavailable: A variable that the definition names is not set.
    """
    headers = {}
    for header, given in settings.headers_from.items():
        scheme, _, name = given.rpartition(" ")
        value = _value(settings, place, name, "headers_from").strip()
        headers[header] = f"{scheme} {value}" if scheme else value
    return headers


def _value(settings: ServerSettings, place: Place, name: str, key: str) -> str:
    value = place.environment.get(name)
    if not value:
        where = f"{key} of the MCP server {settings.name!r}"
        raise Unavailable(Needs.KEY, f"the environment variable {name} ({where}) is not set; set it for the daemon")
    place.secrets.add(name, value)
    return value
