"""Questions over HTTP: listed for whoever comes, answered once, and the first durable answer counts."""

from typing import Any

import anyio
import httpx2
import pytest

from onward.core.records import InteractionClosed, InteractionOpened
from tests.api.serving import CHANGE, ENDED, Served

CHECKPOINT = InteractionOpened(
    interaction_id="q1",
    kind="checkpoint",
    prompt="Stage 'plan' is done. Approve what it brought?",
    options=["approve", "edit", "reject"],
    binds_to={"stage": "plan", "visit": 1, "point": 0},
    ask={"result": "the plan"},
)


async def asked(served: Served, **members: Any) -> str:
    run_id = await served.started(**members)
    served.operations.append(run_id, CHECKPOINT)
    return run_id


async def answer(served: Served, which: str, **given: Any) -> httpx2.Response:
    return await served.client.post(f"/v1/interactions/{which}/answer", json={"answer": given}, headers=CHANGE)


async def listed(served: Served, **params: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await served.client.get("/v1/interactions", params=params)).json()["interactions"]
    return found


async def test_open_questions_are_listed_of_all_runs_or_of_one(served: Served) -> None:
    first, second = await asked(served), await asked(served, agent="coder")
    await served.started()
    assert [question["id"] for question in await listed(served)] == [f"{first}.q1", f"{second}.q1"]
    (question,) = await listed(served, run_id=second)
    assert (question["agent"], question["kind"], question["ask"]) == ("coder", "checkpoint", {"result": "the plan"})
    assert question["advisory"] is True  # its tools run without a sandbox
    assert (await served.client.get("/v1/interactions?run_id=worker-none")).status_code == 404
    assert (await served.client.get("/v1/interactions?run_id=../x")).status_code == 422


async def test_the_same_answer_again_is_the_same_success_and_another_is_told_the_winner(served: Served) -> None:
    run_id = await asked(served)
    first = await answer(served, f"{run_id}.q1", decision="reject", reason="too long")
    again = await answer(served, f"{run_id}.q1", decision="reject", reason="too long")
    other = await answer(served, f"{run_id}.q1", decision="approve")
    assert [response.status_code for response in (first, again, other)] == [200, 200, 409]
    assert again.json()["answer"] == {"decision": "reject", "reason": "too long"}
    assert other.json()["code"] == "conflict"
    assert '"reject"' in other.json()["detail"]
    assert "too long" in other.json()["detail"]
    assert await listed(served) == []
    answers = [line for line in served.operations.journals[run_id] if line["type"] == "InteractionAnswered"]
    assert len(answers) == 1
    assert answers[0]["by"]


async def test_of_answers_at_the_same_time_one_wins(served: Served) -> None:
    run_id = await asked(served)
    codes: list[int] = []

    async def one(number: int) -> None:
        codes.append((await answer(served, f"{run_id}.q1", decision="edit", text=f"plan {number}")).status_code)

    async with anyio.create_task_group() as tasks:
        for number in range(8):
            tasks.start_soon(one, number)
    assert sorted(codes) == [200, *[409] * 7]


@pytest.mark.parametrize(
    ("which", "given", "code"),
    [
        ("{run}.q1", {"decision": "perhaps"}, 422),
        ("{run}.q1", {}, 422),
        ("{run}.q1", {"decision": "edit"}, 422),
        ("{run}.q2", {"decision": "approve"}, 404),
        ("{run}.", {"decision": "approve"}, 422),
        ("{run}", {"decision": "approve"}, 422),
        ("worker-none.q1", {"decision": "approve"}, 404),
        ("..%2f.q1", {"decision": "approve"}, 422),
    ],
)
async def test_what_answers_nothing_changes_nothing(
    which: str, given: dict[str, Any], code: int, served: Served
) -> None:
    run_id = await asked(served)
    before = len(served.operations.journals[run_id])
    response = await answer(served, which.format(run=run_id), **given)
    assert response.status_code in (code, 404 if "%2f" in which else code)
    assert len(served.operations.journals[run_id]) == before


async def test_a_body_of_another_form_and_a_browser_s_form_are_refused(served: Served) -> None:
    url = f"/v1/interactions/{await asked(served)}.q1/answer"
    for body in ({"decision": "approve"}, {"answer": "approve"}, {"answer": {"decision": "approve"}, "more": 1}):
        assert (await served.client.post(url, json=body, headers=CHANGE)).status_code == 422
    bare = await served.client.post(url, json={"answer": {"decision": "approve"}})
    assert bare.status_code == 403
    assert len(await listed(served)) == 1


async def test_a_closed_question_and_one_of_an_ended_run_take_no_answer(served: Served) -> None:
    closed, ended = await asked(served), await asked(served)
    served.operations.append(closed, InteractionClosed(interaction_id="q1", reason="it expired"))
    served.operations.append(ended, ENDED)
    late = await answer(served, f"{closed}.q1", decision="approve")
    assert (late.status_code, "it expired" in late.json()["detail"]) == (409, True)
    assert (await answer(served, f"{ended}.q1", decision="approve")).status_code == 409
    assert await listed(served) == []


async def test_the_answer_is_an_event_of_the_run(served: Served) -> None:
    run_id = await asked(served)
    await answer(served, f"{run_id}.q1", decision="approve")
    served.operations.append(run_id, ENDED)
    events = (await served.client.get(f"/v1/runs/{run_id}/events")).text
    assert [kind for kind in ("InteractionOpened", "InteractionAnswered", "RunEnded") if kind in events] == [
        "InteractionOpened",
        "InteractionAnswered",
        "RunEnded",
    ]
