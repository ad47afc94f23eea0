"""What every clock promises, asked of the system's and of the one that tests own."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import anyio
import pytest

from onward.core.times import parse_stamp, stamp
from onward.ports.clock import Clock
from onward.store.clock import SystemClock
from onward.testing.clocks import FakeClock
from tests.support import eventually


@dataclass
class Time:
    """A clock, and a way to let time pass."""

    clock: Clock
    let_pass: Callable[[float], None]


@pytest.fixture(params=["system", "fake"])
def time(request: pytest.FixtureRequest) -> Time:
    if request.param == "system":
        return Time(SystemClock(), lambda _seconds: None)  # it passes by itself
    fake = FakeClock()
    return Time(fake, fake.advance)


def test_now_is_utc_and_survives_the_form_of_the_journal(time: Time) -> None:
    now = time.clock.now()
    assert now.utcoffset() == timedelta(0)
    assert parse_stamp(stamp(now)) == now


async def test_a_sleep_takes_at_least_its_time_on_both_scales(time: Time) -> None:
    clock = time.clock
    before, wall = clock.monotonic(), clock.now()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(clock.sleep, 0.05)
        await anyio.lowlevel.checkpoint()
        time.let_pass(0.05)
    assert clock.monotonic() - before >= 0.0499
    assert clock.now() > wall


async def test_sleeping_no_time_ends_and_lets_others_run(time: Time) -> None:
    ran: list[str] = []

    async def other() -> None:
        ran.append("other")

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(other)
            while not ran:
                await time.clock.sleep(0)
                await time.clock.sleep(-1)


async def test_a_sleep_can_be_cancelled(time: Time) -> None:
    with anyio.fail_after(30):
        with anyio.move_on_after(0.01) as scope:
            await time.clock.sleep(1000)
        assert scope.cancelled_caught


async def test_monotonic_time_never_goes_back(time: Time) -> None:
    clock, seen = time.clock, []
    for _ in range(100):
        seen.append(clock.monotonic())
        time.let_pass(0.001)
    assert seen == sorted(seen)


async def test_fake_time_stands_still_until_it_is_moved_and_wakes_in_time_only() -> None:
    clock = FakeClock()
    woken: list[float] = []

    async def sleeper(seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append(seconds)

    async with anyio.create_task_group() as tasks:
        for seconds in (3.0, 1.0, 2.0):
            tasks.start_soon(sleeper, seconds)
        await eventually(lambda: clock.sleepers == 3)
        clock.advance(0.999)
        await anyio.lowlevel.checkpoint()
        assert (woken, clock.sleepers) == ([], 3)
        clock.advance(1.001)
        await eventually(lambda: woken == [1.0, 2.0])
        clock.advance(10)
    assert woken == [1.0, 2.0, 3.0]
    assert clock.now() == datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=12)


async def test_a_cancelled_sleeper_is_forgotten() -> None:
    clock = FakeClock()
    with anyio.move_on_after(0.01):
        await clock.sleep(5)
    assert clock.sleepers == 0
