"""Rates and loops, by a clock that stands still."""

from __future__ import annotations

import asyncio

import pytest

from adapters.loops import forever
from adapters.pace import Pace, Rests, Turns


def test_a_pace_allows_a_burst_and_then_its_rate(fake_time):
    pace = Pace(8, 5, fake_time)
    assert [pace.take() for _ in range(6)] == [True] * 5 + [False]
    fake_time.now += 0.125
    assert [pace.take(), pace.take()] == [True, False]
    fake_time.now += 3600
    assert sum(pace.take() for _ in range(100)) == 5


def test_a_clock_that_jumps_back_gives_nothing(fake_time):
    pace = Pace(1, 1, fake_time)
    assert pace.take()
    fake_time.now -= 100
    assert not pace.take()


async def test_in_a_flood_one_rests_but_not_while_somebody_waits(fake_time):
    rests = Rests(10, 5, 0.05, fake_time, fake_time.sleep)
    for _ in range(5):
        await rests.rest()
    assert fake_time.slept == []
    for _ in range(20):  # who is woken at once each time
        await rests.rest()
    assert len(fake_time.slept) in (13, 14)
    assert set(fake_time.slept) == {0.05}
    before = len(fake_time.slept)
    rests.hurry()
    for _ in range(30):
        await rests.rest()
    assert len(fake_time.slept) == before
    fake_time.now += 1.0
    for _ in range(30):
        await rests.rest()
    assert len(fake_time.slept) > before


async def test_turns_begin_at_their_rate_in_the_order_in_which_they_were_asked_for(fake_time):
    turns, begun, free = Turns(4, 3, fake_time, fake_time.sleep), [], []
    for number in range(7):
        free.append(turns.free)
        async with turns.turn():
            begun.append((number, fake_time()))
    assert free == [True] * 3 + [False] * 4
    start = begun[0][1]
    assert [at - start for _, at in begun] == [0, 0, 0, 0.25, 0.5, 0.75, 1.0]


async def test_no_more_turns_are_under_way_than_may_be(fake_time, eventually):
    turns, under_way, gate = Turns(1000, 3, fake_time, fake_time.sleep), [], asyncio.Event()

    async def one(number):
        async with turns.turn():
            under_way.append(number)
            await gate.wait()

    tasks = [asyncio.create_task(one(number)) for number in range(7)]
    await eventually(lambda: len(under_way) == 3)
    assert not turns.free
    tasks[4].cancel()
    gate.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert under_way == [0, 1, 2, 3, 5, 6]


async def test_a_loop_goes_on_after_a_bug_and_counts_it(fake_time):
    failed, rounds = [], iter(range(3))

    class EnoughError(BaseException):
        """Ends the loop."""

    async def once():
        if next(rounds, None) is None:
            raise EnoughError
        raise RuntimeError("a bug")

    with pytest.raises(EnoughError):
        await forever("test", 1.0, once, failed.append, sleep=fake_time.sleep)
    assert failed == ["test"] * 3
