"""How many runs work at once, also when that changes."""

import anyio

from onward.supervisor.slots import Slots


async def taken(slots: Slots, most: int) -> int:
    """Take what is free; returns how many that were."""
    count = 0
    with anyio.move_on_after(0.01):
        while count < most:
            await slots.acquire()
            count += 1
    return count


async def test_more_slots_are_free_at_once() -> None:
    slots = Slots(2)
    assert await taken(slots, 9) == 2
    slots.resize(5)
    assert await taken(slots, 9) == 3


async def test_fewer_slots_are_taken_back_as_they_become_free() -> None:
    slots = Slots(5)
    assert await taken(slots, 4) == 4
    slots.resize(2)  # the free one at once, two when runs rest
    slots.release()
    slots.release()
    assert await taken(slots, 9) == 0
    slots.release()
    assert await taken(slots, 9) == 1


async def test_shrinking_can_be_taken_back_before_it_has_happened() -> None:
    slots = Slots(3)
    assert await taken(slots, 3) == 3
    slots.resize(1)
    slots.resize(4)
    assert await taken(slots, 9) == 1
    for _ in range(4):
        slots.release()
    assert await taken(slots, 9) == 4


async def test_who_goes_while_waiting_takes_nothing_along() -> None:
    """Neither a place in the line nor a slot that was given to it just then."""
    slots = Slots(1)
    await slots.acquire()

    async def use() -> None:
        await slots.acquire()
        try:
            await anyio.sleep_forever()
        finally:
            slots.release()

    async with anyio.create_task_group() as gone:
        gone.start_soon(use)
        gone.start_soon(use)
        await anyio.wait_all_tasks_blocked()
        slots.release()  # given to the first, who is cancelled before it can go on
        gone.cancel_scope.cancel()
    assert await taken(slots, 9) == 1


async def test_the_number_of_slots_costs_nothing() -> None:
    slots = Slots(10**9)
    slots.resize(1)
    slots.resize(10**12)
    assert await taken(slots, 9) == 9


async def test_slots_are_given_in_the_order_in_which_they_were_asked_for() -> None:
    slots, order = Slots(1), list[int]()
    await slots.acquire()

    async def take(number: int) -> None:
        await slots.acquire()
        order.append(number)
        slots.release()

    async with anyio.create_task_group() as tasks:
        for number in range(3):
            tasks.start_soon(take, number)
        await anyio.wait_all_tasks_blocked()
        slots.release()
    assert order == [0, 1, 2]
