"""What the configuration names as secret, known before the first byte of a run is written.

A command can print a key that no model was asked with yet: a daemon that has just come back writes down what commands
printed meanwhile.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from onward.config.agents import load_agents
from onward.config.providers import resolve_provider
from onward.config.settings import Settings
from onward.core.masking import KnownSecrets
from onward.errors import OnwardError
from onward.native.mcp.place import know_values


def know_secrets(
    settings: Settings, agent_dirs: Sequence[Path], secrets: KnownSecrets, environ: Mapping[str, str] = os.environ
) -> None:
    """Tell `secrets` the keys of all providers, the webhooks' secrets, and what MCP servers are given. Reads files.

    What is not there or is refused is none of ours: whoever needs it says so.
    """
    for name, provider in settings.providers.items():
        with suppress(OnwardError):
            secrets.add(f"{name} key", resolve_provider(name, provider, environ).key or "")
    for webhook in settings.notify.webhooks.values():
        secrets.add(webhook.secret_env, environ.get(webhook.secret_env, ""))
    for agent in load_agents(agent_dirs)[0].values():
        know_values(agent.pinned(), environ, secrets)
