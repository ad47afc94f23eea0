"""A server without the SDK that starts at once and speaks the protocol of before 2026: see `world.server_argv`."""

import json
import sys

from tests.native.mcp import acts


def answer(request: acts.Json) -> acts.Json | None:
    match request["method"]:
        case "initialize":
            version = request["params"]["protocolVersion"]
            return {
                "protocolVersion": version,
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "p", "version": "1"},
            }
        case "tools/list":
            return {"tools": acts.tools()}
        case "tools/call":
            return acts.act(request["params"]["name"], request["params"].get("arguments") or {})
        case method:
            raise LookupError(method)


def write(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    acts.started()
    write("a banner that is no message")
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        reply = {"jsonrpc": "2.0", "id": request["id"]}
        try:
            if (result := answer(request)) is None:
                continue
            reply["result"] = result
        except LookupError as error:
            reply["error"] = {"code": -32601, "message": f"there is no method {error}"}
        write(json.dumps(reply))
    acts.left_alone()
