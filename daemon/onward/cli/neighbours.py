"""Looks of `onward doctor` at what answers: the lock, the socket, the daemon, the providers of models."""

import os
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import onward
from onward.cli.client import Client
from onward.cli.examination import Finding, Installation
from onward.config.places import SERVICE, check_socket
from onward.config.providers import BUILT_IN, NoKey, Provider, resolve_provider
from onward.errors import BadConfiguration, OnwardError
from onward.store.directory import HOLD, LOCK
from onward.store.lock import Holder, holder_of
from onward.supervisor.usable import what_would_do

TIMEOUT_S = 5.0
_MODELS = {"openai": "https://api.openai.com/v1/models", "anthropic": "https://api.anthropic.com/v1/models"}


def socket(installation: Installation) -> Iterator[Finding]:
    """Where daemon and clients meet."""
    path = installation.places.socket
    try:
        check_socket(path)
    except BadConfiguration as error:
        yield Finding("fail", str(error), "set ONWARD_SOCKET to a short path")
        return
    if path != installation.client_socket:
        text = f"the daemon listens at {path}, this command looks at {installation.client_socket}"
        yield Finding("fail", text, f"set ONWARD_SOCKET={path} for both")
    found = path.lstat() if os.path.lexists(path) else None
    if found is not None and not stat.S_ISSOCK(found.st_mode):
        yield Finding("fail", f"{path} is no socket; no daemon will remove it", "move it away, or set ONWARD_SOCKET")
        return
    yield from _private(path, found)


def _private(path: Path, found: os.stat_result | None) -> Iterator[Finding]:
    place = path.parent.stat() if path.parent.is_dir() else None
    foreign = place is not None and place.st_uid != os.geteuid() and path != SERVICE.socket  # that is its user's own
    if place is not None and (foreign or place.st_mode & 0o022):
        yield Finding(
            "fail", f"others can put a socket into {path.parent}", f"chmod go-w {path.parent}; it must be yours"
        )
    if found is None:
        yield Finding("ok", f"the socket will be {path}")
    elif found.st_mode & 0o007:
        yield Finding("fail", f"{path} is open to everybody", f"chmod 600 {path}, and restart the daemon")
    else:
        yield Finding("ok", f"the socket is {path}")


def daemon(installation: Installation) -> Iterator[Finding]:
    """Who holds the runs, and whether it answers."""
    holder = _holder(installation)
    client = Client(installation.client_socket, timeout_s=TIMEOUT_S, kept_s=0.0)
    try:
        known = client.get("/v1/daemon")
    except OnwardError as error:
        yield from _silent(installation, holder, error)
        return
    yield from _as_installed(known)
    if holder is None or known.get("pid") != holder.pid:
        text = f"the daemon that answers (pid {known.get('pid')}) does not hold {installation.places.runs_dir}"
        yield Finding("fail", text, "two instances are mixed up: compare ONWARD_HOME, ONWARD_SOCKET and runs_dir")


def _as_installed(known: dict[str, Any]) -> Iterator[Finding]:
    version = known.get("version")
    if version != onward.__version__:
        text = f"the daemon is version {version}, this command {onward.__version__}"
        yield Finding("fail", text, "restart the daemon: onward down --leave-running; onward up")
    else:
        yield Finding("ok", f"the daemon answers (pid {known.get('pid')}, version {version})")
    held = known.get("hold") or {}
    if held.get("on") or held.get("runs"):
        why = "; ".join(held.get("reasons", {}).values()) or "they are copies"
        yield Finding("warn", f"runs are held, none of them is entered: {why}", "onward release RUN, or --all")
    config = known.get("config") or {}
    for problem in config.get("problems") or []:
        yield Finding("fail", f"the daemon goes on with older settings: {problem}", "correct it; it is read at once")
    if waits := config.get("restart_needed"):
        yield Finding("warn", f"changed, but not in use before a restart: {', '.join(waits)}", "restart the daemon")


def _silent(installation: Installation, holder: Holder | None, error: OnwardError) -> Iterator[Finding]:
    if holder is not None:
        text = f"{holder} holds the runs, but does not answer at {installation.client_socket}: {error}"
        yield Finding(
            "fail", text, f"look at its log; if it hangs, end it (kill {holder.pid}): runs go on at the next start"
        )
    elif os.path.lexists(installation.client_socket):
        text = f"nobody answers at {installation.client_socket}, which a daemon left that was killed"
        yield Finding("warn", text, "onward up starts one, which clears it away")
    else:
        yield Finding("warn", "no daemon runs", "onward up starts one; so does onward run")
        if os.path.lexists(installation.places.runs_dir / HOLD):
            text = f"{installation.places.runs_dir / HOLD} is there: a daemon that starts will enter no run"
            yield Finding("warn", text, "onward up, then onward release --all; or remove it")


def _holder(installation: Installation) -> Holder | None:
    return holder_of(str(installation.places.runs_dir / LOCK))


def providers(installation: Installation) -> Iterator[Finding]:
    """The providers of models: keys, and whether they answer."""
    if installation.settings is None:
        return
    ready: list[Provider] = []
    for name, configured in installation.settings.providers.items():
        try:
            ready.append(resolve_provider(name, configured, os.environ))
        except NoKey as error:
            if configured == BUILT_IN.get(name):
                continue
            yield Finding("fail", str(error), "models of this provider cannot be asked until then")
        except BadConfiguration as error:
            yield Finding(
                "fail", f"the provider {name!r}: {error}", "models of this provider cannot be asked until then"
            )
    if not ready:
        yield Finding("warn", "no provider can be used", what_would_do(installation.settings.providers, os.environ))
        return
    with ThreadPoolExecutor(len(ready)) as pool:
        yield from pool.map(asked, ready)


def asked(provider: Provider) -> Finding:
    """Ask a provider which models it has: that costs nothing."""
    import httpx2

    url = models_url(provider)
    headers = {}
    if provider.key and provider.kind == "anthropic":
        headers = {"x-api-key": provider.key, "anthropic-version": "2023-06-01"}
    elif provider.key:
        headers = {"authorization": f"Bearer {provider.key}"}
    try:
        status = httpx2.get(url, headers=headers, timeout=TIMEOUT_S, follow_redirects=False).status_code
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        what = str(error) or type(error).__name__
        remedy = "is it running, and is base_url right?" if provider.base_url else "is this machine online?"
        return Finding("fail", f"the provider {provider.name!r} cannot be reached at {url}: {what}", remedy)
    return _answered(provider, url, status)


def models_url(provider: Provider) -> str:
    """Return where a provider lists its models."""
    if provider.base_url is None:
        return _MODELS[provider.kind]
    base = provider.base_url.rstrip("/")
    return f"{base}/v1/models" if provider.kind == "anthropic" else f"{base}/models"


def _answered(provider: Provider, url: str, status: int) -> Finding:
    if status in (401, 403):
        settings = provider.settings
        source = settings.api_key_file or settings.api_key_env or "api_key_env or api_key_file"
        return Finding(
            "fail", f"the provider {provider.name!r} refuses the key (status {status})", f"renew it: {source}"
        )
    if status == 200:
        return Finding("ok", f"the provider {provider.name!r} answers at {url}")
    text = f"the provider {provider.name!r} answers at {url} with status {status}"
    return Finding("warn", text, "it may still serve its models; try a run")
