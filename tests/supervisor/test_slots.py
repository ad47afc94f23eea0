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
