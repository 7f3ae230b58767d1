"""Lanes: a few at once, in their order, and more where they are slow."""

from __future__ import annotations

import asyncio

import pytest

from adapters.kubernetes.lanes import Lanes
from tests.waiting import eventually

LONG = 1000.0


class Crowd:
    """Tasks that stay in a lane until they are told to leave."""

    def __init__(self, lanes):
        self.lanes = lanes
        self.inside = []
        self.leave = {}

    def send(self, *names):
        self.leave |= {name: asyncio.Event() for name in names}
        return [asyncio.create_task(self._stay(name)) for name in names]

    async def _stay(self, name):
        async with self.lanes:
            self.inside.append(name)
            await self.leave[name].wait()
            self.inside.remove(name)


async def turns():
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_few_are_let_in_and_the_others_in_their_order():
    crowd = Crowd(Lanes(few=2, patience=LONG))
    tasks = crowd.send("a", "b", "c", "d")
    await turns()
    assert crowd.inside == ["a", "b"]
    crowd.leave["b"].set()
    await turns()
    assert crowd.inside == ["a", "c"]
    for event in crowd.leave.values():
        event.set()
    await asyncio.gather(*tasks)


async def test_where_they_wait_for_long_more_are_let_in_but_not_without_end():
    crowd = Crowd(Lanes(few=1, most=3, patience=0.001))
    tasks = crowd.send(*"abcdef")
    await eventually(lambda: len(crowd.inside) == 3, "most are in")
    crowd.lanes._widen()
    await turns()
    assert crowd.inside == list("abc")
    for event in crowd.leave.values():
        event.set()
    await asyncio.gather(*tasks)


async def test_a_few_again_once_none_is_under_way():
    lanes = Lanes(few=1, patience=0.001)
    crowd = Crowd(lanes)
    tasks = crowd.send("a", "b")
    await eventually(lambda: len(crowd.inside) == 2, "both are in")
    for event in crowd.leave.values():
        event.set()
    await asyncio.gather(*tasks)
    lanes._patience = LONG
    tasks = crowd.send("c", "d")
    await turns()
    assert crowd.inside == ["c"]
    for event in crowd.leave.values():
        event.set()
    await asyncio.gather(*tasks)


@pytest.mark.parametrize("admitted", [False, True])
async def test_who_gives_up_keeps_nobody_out(admitted):
    crowd = Crowd(Lanes(few=1, patience=LONG))
    first, second, third = crowd.send("a", "b", "c")
    await turns()
    if admitted:  # in the very turn in which it would have come in
        crowd.leave["a"].set()
        await asyncio.sleep(0)
    second.cancel()
    crowd.leave["a"].set()
    await asyncio.gather(first, second, return_exceptions=True)
    await turns()
    assert crowd.inside == ["c"]
    crowd.leave["c"].set()
    await third
