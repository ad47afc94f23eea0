"""A web page cannot drive the daemon, and no request can exhaust it."""

import json

import pytest

from onward.api.gate import BODY_LIMIT_BYTES, too_deep
from tests.api.serving import CHANGE, Served

BODY = json.dumps({"task": "t", "workspace": "/tmp"}).encode()


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.test"},
        {"origin": "http://evil.test:8080", "host": "evil.test:8080"},
        {"origin": "null"},
        {"origin": "http://localhost:8081", "host": "localhost:8080"},
        {"origin": "http://localhost.evil.test", "host": "localhost"},
        {"host": "evil.test"},
        {"host": "localhost.evil.test"},
        {"host": ""},
    ],
)
async def test_a_foreign_page_is_refused_whatever_it_asks(headers: dict[str, str], served: Served) -> None:
    read = await served.client.get("/v1/daemon", headers=headers)
    change = await served.client.post("/v1/runs", content=BODY, headers={**CHANGE, **headers})
    assert [(r.status_code, r.json()["code"]) for r in (read, change)] == [(403, "refused")] * 2
    assert served.operations.runs == {}


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"content-type": "application/json"},
        {"onward-request": "1"},
        {"onward-request": "1", "content-type": "text/plain"},
        {"onward-request": "1", "content-type": "application/x-www-form-urlencoded"},
        {"onward-request": "yes", "content-type": "application/json"},
    ],
)
async def test_a_change_that_a_form_could_send_is_refused(headers: dict[str, str], served: Served) -> None:
    for path in ("/v1/runs", "/v1/daemon/stop"):
        response = await served.client.post(path, content=BODY, headers=headers)
        assert (response.status_code, response.json()["code"]) == (403, "refused")
    assert (served.operations.runs, served.operations.stops) == ({}, [])


@pytest.mark.parametrize("host", ["localhost", "localhost:8080", "127.0.0.1:9", "[::1]:8080"])
async def test_the_daemons_own_page_may_ask_through_a_forwarded_port(host: str, served: Served) -> None:
    headers = {**CHANGE, "host": host, "origin": f"http://{host}", "content-type": "application/json; charset=utf-8"}
    assert (await served.client.post("/v1/runs", content=BODY, headers=headers)).status_code == 201


async def test_reading_changes_nothing(served: Served) -> None:
    for path in ("/v1/daemon/stop", "/v1/runs?task=t&workspace=/tmp"):
        await served.client.get(path, headers=CHANGE)
    assert (served.operations.runs, served.operations.stops) == ({}, [])


async def test_a_body_of_more_than_4_mib_is_refused_with_and_without_its_length(served: Served) -> None:
    async def chunks() -> object:
        for _ in range(5):
            yield b" " * (1 << 20)

    whole = await served.client.post("/v1/runs", content=b" " * (BODY_LIMIT_BYTES + 1), headers=CHANGE)
    chunked = await served.client.post("/v1/runs", content=chunks(), headers=CHANGE)  # type: ignore[arg-type]  # is one
    assert [(r.status_code, r.json()["code"]) for r in (whole, chunked)] == [(413, "too-large")] * 2


@pytest.mark.parametrize("levels", [64, 65])
async def test_64_levels_of_json_are_taken_and_one_more_is_not(levels: int, served: Served) -> None:
    inner = "[" * (levels - 2) + "]" * (levels - 2)
    body = f'{{"task": "[[[", "workspace": "/tmp", "limits": {{"x": {inner}}}}}'
    response = await served.client.post("/v1/runs", content=body.encode(), headers=CHANGE)
    assert response.status_code == (201 if levels == 64 else 422)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"[" * 64 + b"]" * 64, False),
        (b"[" * 65 + b"]" * 65, True),
        (b'{"a":[' * 33 + b"]}" * 33, True),
        (b'{"a":[' * 32 + b"]}" * 32, False),
        (b'"' + b"[" * 1000 + b'"', False),
        (b'"\\"' + b"[" * 1000 + b'"', False),
        (b"[" * (1 << 20), True),
        (b"[[],{}," * 1000, True),
        (b"[]" * (1 << 20), False),
    ],
)
def test_depth_is_counted_outside_of_strings(text: bytes, expected: bool) -> None:
    assert too_deep(text) is expected
