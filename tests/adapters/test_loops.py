"""Locks by name."""

from __future__ import annotations

import asyncio

from adapters.loops import OneAtATime


async def test_one_of_a_name_at_a_time_and_no_lock_stays():
    locks, inside, most = OneAtATime(), dict.fromkeys("ab", 0), dict.fromkeys("ab", 0)
    both = asyncio.Event()

    async def enter(name: str) -> None:
        async with locks[name]:
            inside[name] += 1
            most[name] = max(most[name], inside[name])
            if all(inside.values()):
                both.set()
            await both.wait()
            await asyncio.sleep(0)
            inside[name] -= 1

    await asyncio.gather(*(enter(name) for name in "aabbab"))
    assert most == {"a": 1, "b": 1}
    assert not len(locks)


async def test_who_gives_up_waiting_leaves_the_lock_to_whoever_holds_it():
    locks, entered, leave = OneAtATime(), asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        async with locks["a"]:
            entered.set()
            await leave.wait()

    holds = asyncio.create_task(hold())
    await entered.wait()
    waits = asyncio.create_task(hold())
    await asyncio.sleep(0)
    waits.cancel()
    await asyncio.gather(waits, return_exceptions=True)
    assert locks["a"].locked()
    leave.set()
    await holds
