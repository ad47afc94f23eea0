"""What people do to runs: a thin shell, checked at the border."""

import pytest

from onward.core.records import RunEnded
from onward.errors import BadRequest
from onward.testing.fake_operations import FakeOperations
from tests.api.serving import CHANGE, ENDED, Served


async def test_a_message_id_is_said_once(served: Served, operations: FakeOperations) -> None:
    url = f"/v1/runs/{await served.started()}/messages"
    headers = {**CHANGE, "idempotency-key": "m1"}
    for _ in range(2):
        said = await served.client.post(url, json={"text": "hello"}, headers=headers)
        assert (said.status_code, said.json()["message_id"]) == (200, "m1")
    other = await served.client.post(url, json={"text": "other"}, headers=headers)
    assert (other.status_code, other.json()["code"]) == (409, "conflict")
    (journal,) = operations.journals.values()
    assert [record["content"] for record in journal if record["type"] == "MessageAdded"] == ["hello"]


@pytest.mark.parametrize("message_id", ["answer-q4", "stage-plan-1", "choose-plan-1", "revival-1", "answer-"])
async def test_a_message_id_that_a_run_could_use_itself_is_refused(
    message_id: str, served: Served, operations: FakeOperations
) -> None:
    run_id = await served.started()
    headers = {**CHANGE, "idempotency-key": message_id}
    said = await served.client.post(f"/v1/runs/{run_id}/messages", json={"text": "hello"}, headers=headers)
    assert (said.status_code, said.json()["code"]) == (422, BadRequest.code)
    assert "Onward's own" in said.json()["detail"]
    assert len(operations.journals[run_id]) == 1


async def test_pause_and_resume_say_how_the_run_stands_and_may_be_repeated(served: Served) -> None:
    run_id = await served.started(limits={"turns": 10})
    acts = [("pause", {"reason": "x"}, "paused"), ("pause", {}, "paused"), ("resume", {"add": {"turns": 5}}, "active")]
    for verb, body, status in acts:
        answer = await served.client.post(f"/v1/runs/{run_id}/{verb}", json=body, headers=CHANGE)
        assert (answer.status_code, answer.json()["status"]) == (200, status)
    assert (await served.client.get(f"/v1/runs/{run_id}")).json()["limits"] == {"turns": 15}


async def test_an_ended_run_takes_nothing_but_the_cancel_it_had(served: Served, operations: FakeOperations) -> None:
    cancelled, ended = await served.started(), await served.started()
    operations.append(ended, ENDED)
    for run_id, status in ((cancelled, 200), (cancelled, 200), (ended, 409)):
        assert (await served.client.post(f"/v1/runs/{run_id}/cancel", json={}, headers=CHANGE)).status_code == status
    for verb, body in (("messages", {"text": "x"}), ("pause", {}), ("resume", {})):
        answer = await served.client.post(f"/v1/runs/{ended}/{verb}", json=body, headers=CHANGE)
        assert (answer.status_code, answer.json()["code"]) == (409, "conflict")


async def test_a_revive_says_from_what_it_came_back_or_why_not(served: Served, operations: FakeOperations) -> None:
    """What is at work stays as it is; what is over for good, or capped by who asks, is a conflict."""
    failed, working, ended = [await served.started() for _ in range(3)]
    operations.append(failed, RunEnded(status="failed", reason="no money"))
    operations.append(ended, ENDED)

    async def revive(run_id: str, **body: object) -> tuple[int, object]:
        answer = await served.client.post(f"/v1/runs/{run_id}/revive", json=body, headers=CHANGE)
        told = answer.json().get("revival") or {}
        return answer.status_code, told.get("reason", answer.json().get("detail"))

    capped, refused = await revive(failed, max_revivals=0)
    assert (capped, "revival-cap" in str(refused)) == (409, True)
    assert await revive(failed) == (200, "ended")
    assert operations.runs[failed].status == "active"
    assert await revive(working) == (200, "live")
    assert (await revive(ended))[0] == 409
    assert len(operations.journals[working]) == 1


@pytest.mark.parametrize("verb", ["messages", "pause", "resume", "cancel", "revive"])
@pytest.mark.parametrize("run_id", ["Ab1", "a%2fb", "..%2fx", "a%00b", "x" * 300, "worker-none"])
async def test_an_act_on_no_run_reaches_nothing(verb: str, run_id: str, served: Served) -> None:
    body = {"text": "x"} if verb == "messages" else {}
    answer = await served.client.post(f"/v1/runs/{run_id}/{verb}", json=body, headers=CHANGE)
    assert answer.status_code in (404, 422)


@pytest.mark.parametrize(
    ("verb", "body"),
    [
        ("messages", {}),
        ("messages", {"text": ""}),
        ("messages", {"text": 3}),
        ("messages", {"text": "x", "role": "system"}),
        ("pause", {"reason": "x" * 2001}),
        ("cancel", {"force": True}),
        ("revive", {"max_revivals": -1}),
        ("revive", {"max_revivals": "5"}),
        ("resume", {"add": {"turns": -1}}),
        ("resume", {"add": {"turns": "5"}}),
        ("resume", {"add": {"turns": True}}),
        ("resume", {"add": {"cost_usd": 1e300}}),
        ("resume", {"add": 5}),
    ],
)
async def test_a_body_that_is_wrong_changes_nothing(
    verb: str, body: dict[str, object], served: Served, operations: FakeOperations
) -> None:
    run_id = await served.started()
    answer = await served.client.post(f"/v1/runs/{run_id}/{verb}", json=body, headers=CHANGE)
    assert (answer.status_code, answer.json()["code"]) == (422, BadRequest.code)
    assert len(operations.journals[run_id]) == 1


@pytest.mark.parametrize("verb", ["messages", "pause", "resume", "cancel", "revive"])
async def test_a_page_cannot_act(verb: str, served: Served, operations: FakeOperations) -> None:
    run_id = await served.started()
    url = f"/v1/runs/{run_id}/{verb}"
    foreign = {**CHANGE, "origin": "http://evil.test"}
    assert (await served.client.post(url, json={"text": "x"}, headers=foreign)).status_code == 403
    assert (await served.client.post(url, data={"text": "x"})).status_code == 403
    assert (await served.client.post(url, json={"text": "x"})).status_code == 403
    assert (await served.client.get(url)).status_code == 405
    assert len(operations.journals[run_id]) == 1


async def test_infinity_is_no_limit(served: Served) -> None:
    url = f"/v1/runs/{await served.started()}/resume"
    for number in ("1e999", "Infinity", "NaN"):
        answer = await served.client.post(url, content=f'{{"add": {{"cost_usd": {number}}}}}', headers=CHANGE)
        assert answer.status_code == 422


async def test_agents_and_a_reload_are_what_the_daemon_says(served: Served, operations: FakeOperations) -> None:
    assert (await served.client.get("/v1/agents")).json()["agents"][0]["name"] == "worker"
    operations.config = {"ok": False, "problems": ["onward.toml:3: wrong"], "loaded_at": None, "restart_needed": []}
    answer = await served.client.post("/v1/daemon/reload", json={}, headers=CHANGE)
    assert (answer.status_code, answer.json()) == (200, operations.config)
    assert (await served.client.get("/v1/daemon")).json()["config"] == operations.config


async def test_runs_are_held_and_released(served: Served, operations: FakeOperations) -> None:
    run_id = await served.started()
    held = await served.client.post("/v1/daemon/hold", json={"reason": "an upgrade"}, headers=CHANGE)
    assert held.json()["hold"]["reasons"] == {"asked": "an upgrade"}
    assert (await served.client.get("/readyz")).json() == {"ready": True, "held": ["asked"]}
    for body, status in (({"run_id": run_id}, 200), ({"run_id": "worker-none"}, 404), ({"run_id": "../x"}, 422)):
        answer = await served.client.post("/v1/daemon/release", json=body, headers=CHANGE)
        assert answer.status_code == status
    released = await served.client.post("/v1/daemon/release", json={}, headers=CHANGE)
    assert (released.json()["hold"]["on"], operations.releases) == (False, [run_id, None])


@pytest.mark.parametrize("number", ["9" * 30, "9" * 5000, "1e400", "-1e400", "NaN", "Infinity"])
async def test_a_number_that_nothing_can_hold_is_refused(number: str, served: Served) -> None:
    """Wherever it stands; no number is a bug of the daemon."""
    run_id = await served.started()
    headers = {**CHANGE, "content-type": "application/json"}
    bodies = {
        f"/v1/runs/{run_id}/resume": '{"add": {"turns": %s}}',
        f"/v1/runs/{run_id}/revive": '{"max_revivals": %s}',
        f"/v1/interactions/{run_id}.q1/answer": '{"answer": {"add": {"turns": %s}}}',
    }
    for url, body in bodies.items():
        answer = await served.client.post(url, content=body % number, headers=headers)
        assert 400 <= answer.status_code < 500, (url, answer.text)
