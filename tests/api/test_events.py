"""Event streams: every durable record once, in order, until the run or the daemon ends."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import httpx2
import pytest

from onward.api import server
from onward.api.events import MAX_STREAMS
from onward.testing.fake_operations import FakeOperations
from tests.api.serving import ENDED, Served, blocks, serving, turn


async def events(response: httpx2.Response) -> AsyncIterator[tuple[int, str, dict[str, object]]]:
    async for fields in blocks(response):
        yield int(fields["id"]), fields["event"], json.loads(fields["data"])


async def test_a_stream_holds_what_was_and_what_comes_and_ends_with_the_run(served: Served) -> None:
    run_id = await served.started()
    async with served.client.stream("GET", f"/v1/runs/{run_id}/events") as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        seen = []
        async for seq, kind, record in events(response):
            assert (record["seq"], record["type"]) == (seq, kind)
            seen.append((seq, kind))
            if seq == 1:
                served.operations.append(run_id, turn(1, "two\n\ndata: {}\n\nlines"))
                served.operations.append(run_id, ENDED)
    assert seen == [(1, "RunStarted"), (2, "AssistantTurn"), (3, "RunEnded")]


@pytest.mark.parametrize(("params", "headers"), [({"after": "2"}, {}), ({"after": "0"}, {"last-event-id": "2"})])
async def test_a_client_goes_on_where_it_was(params: dict[str, str], headers: dict[str, str], served: Served) -> None:
    run_id = await served.started()
    for number in (1, 2, 3):
        served.operations.append(run_id, turn(number, "text"))
    served.operations.append(run_id, ENDED)
    response = await served.client.get(f"/v1/runs/{run_id}/events", params=params, headers=headers)
    assert [seq async for seq, _, _ in events(response)] == [3, 4, 5]


async def test_a_silent_stream_beats(tmp_path: Path, operations: FakeOperations) -> None:
    async with serving(tmp_path / "onward.sock", operations, heartbeat_s=0.01) as served:
        run_id = await served.started()
        async with served.client.stream("GET", f"/v1/runs/{run_id}/events?after=1") as response:
            beats = 0
            async for line in response.aiter_lines():
                beats += line == ": "
                if beats == 3:
                    break


async def test_the_daemons_shutdown_ends_every_stream_at_once(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not wait for the end of the grace."""
    monkeypatch.setattr(server, "GRACE_S", 3600.0)
    run_id = await served.started()
    async with served.client.stream("GET", f"/v1/runs/{run_id}/events") as response:
        with anyio.fail_after(30):
            async for _ in events(response):
                served.shutdown.set()


async def test_streams_are_bounded_and_what_is_left_frees_its_place(served: Served) -> None:
    run_id = await served.started()
    url = f"/v1/runs/{run_id}/events"
    async with anyio.create_task_group() as tasks:
        opened = anyio.Semaphore(0)

        async def hold() -> None:
            async with served.client.stream("GET", url) as response:
                async for _ in events(response):
                    opened.release()

        for _ in range(MAX_STREAMS):
            tasks.start_soon(hold)
        for _ in range(MAX_STREAMS):
            await opened.acquire()
        refused = await served.client.get(url)
        assert (refused.status_code, refused.json()["code"]) == (429, "busy")
        served.operations.append(run_id, ENDED)
    assert (await served.client.get(url)).status_code == 200


async def test_a_client_that_goes_away_ends_its_watch(served: Served, operations: FakeOperations) -> None:
    run_id = await served.started()
    ended = anyio.Event()
    watch = operations.watch

    async def watched(run_id: str, *, after: int = 0, deltas: bool = False) -> AsyncIterator[dict[str, object]]:
        try:
            async for record in watch(run_id, after=after):
                yield record
        finally:
            ended.set()

    operations.watch = watched  # type: ignore[method-assign]  # to see that it is closed
    async with served.client.stream("GET", f"/v1/runs/{run_id}/events") as response:
        async for _ in events(response):
            break
    await ended.wait()
