"""The stream of all runs, and pieces of answers on the stream of one."""

import json

from onward.testing.fake_operations import FakeOperations
from tests.api.serving import ENDED, Fields, Served, blocks, turn


async def test_pieces_of_an_answer_have_no_id_and_come_on_request(served: Served, operations: FakeOperations) -> None:
    run_id = await served.started()
    for query, kinds in (("?deltas=true", ["RunStarted", "delta", "delta", "AssistantTurn"]), ("", ["AssistantTurn"])):
        seen: list[Fields] = []
        url = f"/v1/runs/{run_id}/events{query}"
        async with served.client.stream("GET", url, headers={"last-event-id": "0" if query else "1"}) as response:
            async for fields in blocks(response):
                seen.append(fields)
                if fields["event"] == "RunStarted":
                    operations.tell_delta(run_id, "one\n\nid: 7\n\n")
                    operations.tell_delta(run_id, "two")
                if len(seen) == 3 and query:
                    operations.append(run_id, turn(1, "one two"))
                if fields["event"] == "AssistantTurn":
                    break
        assert [fields["event"] for fields in seen] == kinds
        deltas = [fields for fields in seen if fields["event"] == "delta"]
        assert not any("id" in fields for fields in deltas)
        assert [json.loads(fields["data"])["delta"] for fields in deltas][:1] in (["one\n\nid: 7\n\n"], [])


async def test_the_news_of_all_runs_begin_with_the_word_to_read_them(
    served: Served, operations: FakeOperations
) -> None:
    seen: list[Fields] = []
    async with served.client.stream("GET", "/v1/events") as response:
        async for fields in blocks(response):
            seen.append(fields)
            if len(seen) == 1:
                run_id = await served.started()
                operations.append(run_id, ENDED)
            if len(seen) == 3:
                break
    assert [fields["event"] for fields in seen] == ["resync", "run", "run"]
    assert [fields["id"] for fields in seen] == ["fake:0", "fake:1", "fake:2"]
    assert [json.loads(fields["data"])["status"] for fields in seen[1:]] == ["active", "completed"]


async def test_a_client_that_comes_back_hears_what_it_missed(served: Served, operations: FakeOperations) -> None:
    operations.append(await served.started(), ENDED)
    for headers, query in (({"last-event-id": "fake:1"}, "?after=fake:0"), ({}, "?after=fake:1")):
        async with served.client.stream("GET", f"/v1/events{query}", headers=headers) as response:
            async for fields in blocks(response):
                assert (fields["event"], fields["id"]) == ("run", "fake:2")
                break
