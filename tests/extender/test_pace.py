"""Rates and loops, by a clock that stands still."""

from __future__ import annotations

import pytest

from adapters.loops import forever
from extender.pace import Pace


def test_a_pace_allows_a_burst_and_then_its_rate(clock):
    pace = Pace(8, 5, clock)
    assert [pace.take() for _ in range(6)] == [True] * 5 + [False]
    clock.advance(0.125)
    assert [pace.take(), pace.take()] == [True, False]
    clock.advance(3600)
    assert sum(pace.take() for _ in range(100)) == 5


def test_a_clock_that_jumps_back_gives_nothing(clock):
    pace = Pace(1, 1, clock)
    assert pace.take()
    clock.advance(-100)
    assert not pace.take()


async def test_a_loop_goes_on_after_a_bug_and_counts_it(metrics, clock):
    rounds = iter(range(3))

    class EnoughError(BaseException):
        """Ends the loop."""

    async def once():
        if next(rounds, None) is None:
            raise EnoughError
        raise RuntimeError("a bug")

    with pytest.raises(EnoughError):
        await forever("test", 1.0, once, metrics.loop_error, sleep=clock.sleep)
    assert b'j10ce_loop_errors_total{loop="test"} 3.0' in metrics.exposition()
