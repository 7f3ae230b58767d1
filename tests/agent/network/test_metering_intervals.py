"""When a look at the classes was made: not when the loop hears of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from agent.deficit.judge import Judged
from agent.network import metering
from agent.network.counting import Counts
from agent.network.metering import Metering
from agent.network.records import Counters
from agent.network.sending import Place, Way
from qos.network.wanted import Direction
from tests.fake_time import FakeTime

WAY = Way("one", Direction.EGRESS)
FLOOR = 1000
LATE = 3.0


class _NoNetlink:
    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


async def test_a_loop_that_is_late_lengthens_no_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its floor, exactly, is what the pod sends, with packets waiting all the time."""
    clock, began = FakeTime(), 1000.0
    looks = 0

    def read(*_: object) -> Counts:
        sent = int((clock.now - began) * FLOOR)
        clock.now += 0.01
        return Counts({2: {0x10: Counters(sent, 0, 0, 0, 0, 99)}}, {})

    async def in_a_thread(work: Callable[..., Any], *given: Any) -> Any:
        """The loop hears of each second answer seconds after it was given."""
        nonlocal looks
        looks += 1
        done = work(*given)
        clock.now += LATE * (looks % 2)
        await asyncio.sleep(0)
        return done

    monkeypatch.setattr(metering, "Netlink", _NoNetlink)
    monkeypatch.setattr(metering, "places", lambda _: {WAY: Place(2, 0x10, FLOOR)})
    monkeypatch.setattr(metering.counting, "read_classes", read)
    monkeypatch.setattr(metering.asyncio, "to_thread", in_a_thread)
    judged: list[tuple[float, Judged]] = []
    enough = asyncio.Event()

    def take(at: float, found: Mapping[Way, Judged]) -> None:
        judged.append((at, found[WAY]))
        if len(judged) > 20:
            enough.set()

    running = asyncio.create_task(Metering(lambda: None, take, clock=clock, sleep=clock.sleep).run())
    async with asyncio.timeout(60):
        await enough.wait()
    running.cancel()
    assert [one.deficit for _, one in judged] == [0.0] * len(judged)
    times = [at for at, _ in judged]
    for one, since, until in zip(judged[1:], times, times[1:], strict=False):
        assert one[1].wanted == pytest.approx(until - since)
