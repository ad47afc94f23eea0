"""Runs over HTTP: started once, listed in pages, read as far as they are durable."""

import pytest

from onward.testing.fake_operations import FakeOperations
from tests.api.serving import CHANGE, ENDED, Served, turn


async def test_a_start_answers_201_and_where_the_run_is(served: Served) -> None:
    response = await served.start(task="a\x00b", agent="coder", limits={"turns": 3}, on_restart="stop")
    run_id = response.json()["run_id"]
    assert (response.status_code, response.headers["location"]) == (201, f"/v1/runs/{run_id}")
    asked = served.operations.requests[run_id]
    assert (asked.task, asked.agent, asked.limits, asked.on_restart) == ("a\ufffdb", "coder", {"turns": 3}, "stop")
    assert asked.by


async def test_the_same_key_gives_the_same_run_and_another_request_under_it_is_a_conflict(served: Served) -> None:
    served.client.headers["idempotency-key"] = "k1"
    first, second, other = await served.start(), await served.start(), await served.start(task="something else")
    assert (first.status_code, second.status_code, other.status_code) == (201, 200, 409)
    assert first.json()["run_id"] == second.json()["run_id"]
    assert other.json()["code"] == "conflict"
    assert len(served.operations.runs) == 1


async def test_pages_hold_every_run_once_although_runs_start_and_end_between_them(served: Served) -> None:
    started = [await served.started() for _ in range(5)]
    page = (await served.client.get("/v1/runs", params={"limit": 2, "status": "active"})).json()
    served.operations.append(page["next"], ENDED)
    await served.started()
    seen = [run["run_id"] for run in page["runs"]]
    while page["next"]:
        params = {"limit": 2, "status": "active", "cursor": page["next"]}
        page = (await served.client.get("/v1/runs", params=params)).json()
        seen += [run["run_id"] for run in page["runs"]]
    assert seen == started[::-1]


async def test_runs_can_be_chosen_by_status_and_by_prefix(served: Served) -> None:
    first, second = await served.started(), await served.started(agent="coder")
    served.operations.append(first, ENDED)

    async def chosen(**params: str | list[str]) -> list[str]:
        found = (await served.client.get("/v1/runs", params=params)).json()
        return [run["run_id"] for run in found["runs"]]

    assert await chosen(status="completed,failed") == [first]
    assert await chosen(status=["active", "parked"]) == [second]
    assert await chosen(prefix="work") == [first]
    assert (await served.client.get("/v1/runs?status=asleep")).json()["code"] == "bad-request"
    assert (await served.client.get("/v1/runs?cursor=worker-none")).json()["code"] == "bad-request"


async def test_records_are_paged_by_seq(served: Served) -> None:
    run_id = await served.started()
    for number in range(1, 5):
        served.operations.append(run_id, turn(number, "text"))
    first = (await served.client.get(f"/v1/runs/{run_id}/records?after=1&limit=2")).json()
    second = (await served.client.get(f"/v1/runs/{run_id}/records?after={first['next']}&limit=1000")).json()
    assert [record["seq"] for record in first["records"] + second["records"]] == [2, 3, 4, 5]
    assert second["next"] is None


async def test_a_page_of_large_records_is_cut_and_goes_on(served: Served) -> None:
    run_id = await served.started()
    for number in range(1, 5):
        served.operations.append(run_id, turn(number, "x" * (3 << 20)))
    url = f"/v1/runs/{run_id}/records"
    first = (await served.client.get(url)).json()
    second = (await served.client.get(url, params={"after": first["next"]})).json()
    assert [record["seq"] for record in first["records"] + second["records"]] == [1, 2, 3, 4, 5]
    assert second["next"] is None


async def test_a_run_is_shown_in_full_and_a_missing_one_is_not_found(served: Served) -> None:
    run_id = await served.started(task="t" * 5000)
    assert (await served.client.get(f"/v1/runs/{run_id}")).json()["task"] == "t" * 5000
    for path in ("", "/records", "/events"):
        missing = await served.client.get(f"/v1/runs/worker-0000{path}")
        assert (missing.status_code, missing.json()["code"]) == (404, "not-found")


@pytest.mark.parametrize(
    "run_id",
    ["..%2fx", "%2fetc%2fx", "a%2fb", "%2e%2e%2f", "a%00b", "worker-1%0a", "w%C3%B6rker", "x" * 300, "Ab1"],
)
async def test_what_is_no_run_id_reaches_nothing(run_id: str, served: Served) -> None:
    for path in ("", "/records", "/events"):
        response = await served.client.get(f"/v1/runs/{run_id}{path}")
        assert response.status_code in (404, 422)
        assert response.headers["content-type"] == "application/problem+json"


async def test_the_daemon_says_what_it_is_and_is_asked_to_stop(served: Served, operations: FakeOperations) -> None:
    await served.started()
    known = (await served.client.get("/v1/daemon")).json()
    assert (known["runs"], known["ready"]) == ({"active": 1}, True)
    stopped = await served.client.post("/v1/daemon/stop", json={"leave_running": True}, headers=CHANGE)
    assert (stopped.status_code, operations.stops) == (202, [True])


async def test_readiness_is_said_apart_from_life(served: Served, operations: FakeOperations) -> None:
    assert (await served.client.get("/readyz")).status_code == 200
    operations.ready = False
    not_yet = await served.client.get("/readyz")
    assert (not_yet.status_code, not_yet.json()["code"]) == (503, "unreachable")
    assert (await served.client.get("/healthz")).status_code == 200


async def test_the_api_describes_itself_and_serves_no_pages_of_others(served: Served) -> None:
    described = (await served.client.get("/openapi.json")).json()
    assert set(described["paths"]) == {
        "/v1/runs", "/v1/runs/{run_id}", "/v1/runs/{run_id}/records", "/v1/runs/{run_id}/events",
        "/v1/runs/{run_id}/messages", "/v1/runs/{run_id}/pause", "/v1/runs/{run_id}/resume",
        "/v1/runs/{run_id}/cancel", "/v1/runs/{run_id}/revive", "/v1/events", "/v1/agents",
            "/v1/interactions", "/v1/interactions/{interaction_id}/answer",
        "/v1/daemon", "/v1/daemon/reload", "/v1/daemon/stop", "/v1/daemon/hold", "/v1/daemon/release",
        "/healthz", "/readyz", "/metrics",
    }  # fmt: skip
    assert (await served.client.get("/docs")).status_code == 404
