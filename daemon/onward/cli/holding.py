"""The verbs about holding: hold, release, and how a hold is shown."""

from typing import Any

from onward.cli.client import Client
from onward.cli.terminal import line, out, paint, say
from onward.errors import BadRequest

Json = dict[str, Any]


def hold(*, reason: str) -> int:
    """Let no run be entered."""
    known = Client().post("/v1/daemon/hold", {"reason": reason}, repeatable=True)
    working = known["runs"].get("active", 0)
    left = f" {working} at work {'go' if working > 1 else 'goes'} on until they rest." if working else ""
    say(f"no run is entered from now on, over restarts too.{left} They go on with: onward release --all")
    return 0


def release(run: str | None, *, everything: bool) -> int:
    """Let held runs go on."""
    if (run is None) is not everything:
        raise BadRequest("say which run to release, or --all")
    from onward.cli.runs import resolve

    client = Client()
    if run is not None:
        run_id = resolve(client, run)
        client.post("/v1/daemon/release", {"run_id": run_id}, repeatable=True)
        say(f"{run_id} is released")
        return 0
    before = client.get("/v1/daemon").get("hold") or {}
    client.post("/v1/daemon/release", {}, repeatable=True)
    released = before.get("on") or before.get("runs")
    say(f"all runs are released ({before['runs']} were held)" if released else "nothing was held")
    return 0


def what_to_do(run_id: object, status: object, waiting_on: object = None) -> str | None:
    """Return the command that lets a run go on which nothing but a person lets go on."""
    if status == "quarantined":
        return f"onward revive {run_id}"
    return f"onward release {run_id}" if waiting_on == "release" or status == "held" else None


def show_hold(held: Json) -> None:
    """Say why runs are held and what to do, if they are."""
    if held.get("on"):
        say_why = "; ".join(f"{line(word, 20)}: {line(why)}" for word, why in held.get("reasons", {}).items())
        out(f"held       {paint(f'no run is entered ({say_why})', 'warn')}")
    if held.get("on") or held.get("runs"):
        out(f"           {held.get('runs', 0)} wait for it; look at them, then: onward release RUN, or --all")
