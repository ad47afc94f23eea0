"""What would do where no model can be used: said in one screen, with what was found on this machine."""

import os
import shutil
import socket
from collections.abc import Mapping

from onward.config.providers import ProviderSettings

OLLAMA = ("127.0.0.1", 11434)
AGENT_CLIS = ("claude", "codex", "opencode", "gemini", "copilot", "qwen", "goose", "aider")
PROBE_S = 0.3


def what_would_do(providers: Mapping[str, ProviderSettings], environ: Mapping[str, str]) -> str:
    """Return the ways to a model. Looks for a local server and for programs; call it in a thread."""
    keys = list(dict.fromkeys(p.api_key_env for p in providers.values() if p.api_key_env))
    ways = [
        f"a key in the environment of the daemon ({' or '.join(keys)}), which is then started again",
        _local_server(),
        "--model scripted/FILE, to rehearse without a model (`onward demo` shows it)",
        _agent_clis(environ.get("PATH", os.defpath)),
    ]
    return "no model can be used yet. What would do:\n" + "\n".join(f"  - {way}" for way in ways)


def _local_server() -> str:
    host, port = OLLAMA
    try:
        socket.create_connection(OLLAMA, PROBE_S).close()
        found = f"one listens on {host}:{port}"
    except OSError:
        found = f"none listens on {host}:{port}, where Ollama would"
    return (
        f"a local OpenAI-compatible server ({found}); in onward.toml:\n"
        "      [providers.local]\n"
        '      kind = "openai"\n'
        f'      base_url = "http://{host}:{port}/v1"\n'
        '      model = "the model that it serves"'
    )


def _agent_clis(path: str) -> str:
    found = [name for name in AGENT_CLIS if shutil.which(name, path=path)]
    told = f"found: {', '.join(found)}" if found else f"none of {', '.join(AGENT_CLIS)} is on PATH"
    return f"not in this version yet, but to come: an installed agent CLI ({told})"
