"""Whatever goes wrong is answered as problem details with a stable code."""

from typing import Any

import pytest

from onward.errors import DiskFull, InternalError
from onward.testing.fake_operations import FakeOperations
from tests.api.serving import CHANGE, Served

BODY = {"task": "t", "workspace": "/tmp"}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({**BODY, "agnet": "x"}, "body.agnet"),
        ({"task": "t"}, "body.workspace"),
        ({**BODY, "task": ""}, "body.task"),
        ({**BODY, "task": 3}, "body.task"),
        ({**BODY, "workspace": "relative"}, "must be an absolute path"),
        ({**BODY, "on_restart": "later"}, "body.on_restart"),
        ({**BODY, "agent": "nobody"}, "there is no agent 'nobody'"),
        ([], "body"),
    ],
)
async def test_a_wrong_body_is_named_and_starts_nothing(body: Any, said: str, served: Served) -> None:
    response = await served.client.post("/v1/runs", json=body, headers=CHANGE)
    problem = response.json()
    assert (response.status_code, response.headers["content-type"]) == (422, "application/problem+json")
    assert (problem["code"], problem["status"]) == ("bad-request", 422)
    assert said in problem["detail"]
    assert served.operations.runs == {}


@pytest.mark.parametrize("content", [b"{", b'{"task": "\\ud800", "workspace": "/"}', b"\xff\xfe", b"", b"{" * 60])
async def test_a_body_that_is_no_json_text_is_a_bad_request(content: bytes, served: Served) -> None:
    response = await served.client.post("/v1/runs", content=content, headers=CHANGE)
    assert (response.status_code, response.json()["code"]) == (422, "bad-request")


@pytest.mark.parametrize("key", ["", "k" * 201, "two words"])
async def test_an_idempotency_key_is_short_and_printable(key: str, served: Served) -> None:
    response = await served.client.post("/v1/runs", json=BODY, headers={**CHANGE, "idempotency-key": key})
    assert response.json()["code"] == "bad-request"


async def test_unknown_paths_and_methods_are_problems_too(served: Served) -> None:
    unknown = await served.client.get("/v2")
    wrong = await served.client.put("/v1/daemon", json={}, headers=CHANGE)
    assert (unknown.status_code, unknown.json()["code"]) == (404, "not-found")
    assert (wrong.status_code, wrong.json()["code"]) == (405, "method-not-allowed")


@pytest.mark.parametrize(
    ("error", "status", "code", "detail"),
    [
        (DiskFull("no space for the run"), 507, "disk-full", "no space for the run"),
        (InternalError("secret"), 500, "internal", "a bug in Onward; its log says more"),
    ],
)
async def test_the_errors_code_decides_and_a_bug_says_nothing(
    error: Exception, status: int, code: str, detail: str, served: Served, operations: FakeOperations
) -> None:
    async def fails(*_: object) -> Any:
        raise error

    operations.get_run = fails  # type: ignore[method-assign, assignment]  # the disk of a fake cannot fill up
    response = await served.client.get("/v1/runs/worker-1")
    problem = response.json()
    assert (response.status_code, problem["code"], problem["detail"]) == (status, code, detail)
