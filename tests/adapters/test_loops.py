"""Locks by name, and rounds of a loop that are left out."""

from __future__ import annotations

import asyncio
from collections import Counter

from adapters.loops import OneAtATime, when_due


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
            inside[name] -= 1

    await asyncio.gather(*(enter(name) for name in "aabbab"))
    assert most == {"a": 1, "b": 1}
    assert not locks._locks


async def test_who_gives_up_waiting_leaves_the_lock_to_whoever_holds_it():
    locks, leave = OneAtATime(), asyncio.Event()

    async def hold(asks: asyncio.Event) -> None:
        asks.set()
        async with locks["a"]:
            await leave.wait()

    async def begun() -> asyncio.Task[None]:
        asks = asyncio.Event()
        task = asyncio.create_task(hold(asks))
        await asks.wait()
        return task

    holds, waits = await begun(), await begun()
    waits.cancel()
    await asyncio.gather(waits, return_exceptions=True)
    assert locks["a"].locked()
    leave.set()
    await holds


async def test_a_round_is_left_out_while_nothing_is_due_but_not_for_long():
    now, due, rounds = Counter[str](), {7, 8}, []

    async def once() -> None:
        rounds.append(now["ticks"])

    look = when_due(lambda: now["ticks"] in due, 5, once, lambda: now["ticks"])
    while now["ticks"] < 14:
        await look()
        now["ticks"] += 1
    assert rounds == [0, 5, 7, 8, 13]
