"""What clients are told as it happens."""

from dataclasses import dataclass, field

import anyio
import pytest

from onward.core.records import Json
from onward.supervisor.entries import Entry
from onward.supervisor.watching import DELTAS, News, follow


def entry(news: News, number: int = 1, status: str = "active") -> Entry:
    return Entry(run_id=f"worker-{number}", index={"run_id": f"worker-{number}", "status": status}, on_change=news.tell)


async def first(news: News, after: str | None, count: int) -> list[Json]:
    items: list[Json] = []
    with anyio.fail_after(30):
        async for item in news.after(after):
            items.append(item)
            if len(items) == count:
                break
    return items


async def test_news_tell_changes_once_and_in_order() -> None:
    news = News(epoch="e")
    run = entry(news)
    for status in ("active", "active", "parked", "parked", "active"):
        run.index = {**run.index, "status": status, "turn": object()}
        run.notify()
    told = await first(news, "e:0", 3)
    assert [item["id"] for item in told] == ["e:1", "e:2", "e:3"]
    assert [item["run"]["status"] for item in told] == ["active", "parked", "active"]
    assert await first(news, "e:2", 1) == told[2:]


@pytest.mark.parametrize("after", [None, "", "other:3", "e:4", "e:-1", "e:x", "e:", "e:\u0663", "e:1e3"])
async def test_a_position_that_means_nothing_here_is_told_to_read_anew(after: str | None) -> None:
    news = News(epoch="e")
    for number in (1, 2, 3):
        entry(news, number).notify()
    assert await first(news, after, 1) == [{"id": "e:3"}]


async def test_a_slow_reader_is_told_once_that_it_missed_something_and_goes_on() -> None:
    news = News(epoch="e", size=4)
    reader = news.after("e:0")
    entry(news, 1).notify()
    assert (await anext(reader))["id"] == "e:1"
    for number in range(2, 12):
        entry(news, number).notify()
    assert await anext(reader) == {"id": "e:11"}
    entry(news, 12).notify()
    assert (await anext(reader))["run"]["run_id"] == "worker-12"
    assert len(await first(news, "e:8", 4)) == 4
    assert await first(news, "e:7", 1) == [{"id": "e:12"}]


async def test_those_who_wait_are_woken() -> None:
    news = News(epoch="e")
    told: list[Json] = []

    async def wait() -> None:
        told.extend(await first(news, "e:0", 1))

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        entry(news).notify()
    assert len(told) == 3


@dataclass
class _State:
    turns: int = 0
    attempts: int = 1


@dataclass
class _Live:
    state: _State = field(default_factory=_State)

    def index(self) -> Json:
        return {"status": "active"}

    def settled(self) -> bool:
        return True


@dataclass
class _Loaded:
    live: _Live = field(default_factory=_Live)


async def test_no_piece_of_an_answer_comes_after_its_turn_and_a_slow_reader_misses_some() -> None:
    run, loaded, journal = entry(News()), _Loaded(), [{"seq": 1}]
    run.loaded = loaded  # type: ignore[assignment]  # as much of it as is looked at

    async def read(after: int, limit: int) -> list[Json]:
        return journal[after : after + limit]

    watched = follow(run, read, after=0, deltas=True)
    assert await anext(watched) == {"seq": 1}
    run.tell_delta("piece")
    assert await anext(watched) == {"delta": "piece"}
    for number in range(2 * DELTAS):
        run.tell_delta(str(number))
    loaded.live.state.turns = 1  # the turn is written
    journal.append({"seq": 2})
    run.notify()
    assert await anext(watched) == {"seq": 2}
    heard: list[Json] = []

    async def hear() -> None:
        heard.append(await anext(watched))

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hear)
            await anyio.wait_all_tasks_blocked()
            run.tell_delta("next")
    assert heard == [{"delta": "next"}]
    await watched.aclose()  # type: ignore[attr-defined]  # it is a generator
    assert run.watchers == set()


async def test_a_run_that_ends_while_it_is_read_is_told_to_its_last_record() -> None:
    run = entry(News(epoch="e"))
    end = {"type": "RunEnded", "seq": 1}

    async def read(after: int, _limit: int) -> list[Json]:
        if run.index["status"] == "completed":
            return [end][after:]
        run.index = {**run.index, "status": "completed"}  # right after this reader has looked
        run.notify()
        return []

    with anyio.fail_after(30):
        assert [record async for record in follow(run, read, after=0, deltas=False)] == [end]
