"""However many look, and however often, the ledger is asked about once a second."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from adapters.serving.readiness import Readiness
from extender.metrics import Metrics
from extender.rest import app
from extender.snapshots import FRESH_SECONDS, SHARE, Snapshots
from ledger.decisions import DemandReport, Mode


class Counting:
    """A ledger that counts how often it is asked, and takes its time."""

    def __init__(self, clock, takes=0.0):
        self.clock, self.takes, self.asked = clock, takes, 0

    def gather_report(self):
        self.asked += 1
        yield {}
        self.clock.advance(self.takes)
        yield {"default/a": DemandReport("default/a", 9, 0, self.asked, ())}

    def gauges(self):
        return {"holds": self.asked}


async def test_it_is_asked_once_until_the_answer_is_old(clock):
    ledger = Counting(clock)
    snapshots = Snapshots(ledger, clock)
    for _ in range(100):
        reports, gauges = await snapshots.take()
        assert reports["default/a"].held == gauges["holds"] == 1
    clock.advance(FRESH_SECONDS)
    reports, gauges = await snapshots.take()
    assert reports["default/a"].held == gauges["holds"] == 2
    assert snapshots.latest == (reports, gauges)


async def test_those_who_look_together_share_one_look(clock):
    ledger = Counting(clock)
    snapshots = Snapshots(ledger, clock)
    seen = await asyncio.gather(*(snapshots.take() for _ in range(10)))
    assert ledger.asked == 1
    assert all(one.reports["default/a"].held == 1 for one in seen)


async def test_looking_takes_a_twentieth_of_the_time_at_most(clock):
    ledger = Counting(clock, takes=0.25)
    snapshots, began = Snapshots(ledger, clock), clock()
    while clock() - began < 100:
        await snapshots.take()
        clock.advance(0.125)
    assert ledger.asked * 0.25 <= 100 * SHARE + 0.25
    assert ledger.asked >= 15


async def test_after_a_renewal_the_ledger_is_asked_at_once(clock):
    ledger = Counting(clock)
    snapshots = Snapshots(ledger, clock)
    await snapshots.take()
    snapshots.renew()
    assert (await snapshots.take()).gauges["holds"] == 2


@pytest.mark.parametrize("path", ["/holds", "/metrics"])
async def test_readers_and_scrapers_share_one_look(clock, path):
    ledger, metrics = Counting(clock), Metrics()
    snapshots = Snapshots(ledger, clock)
    metrics.watch_ledger(lambda: snapshots.latest)
    service = app(Mode.GUARD, snapshots, Readiness({}, clock), metrics)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(service), base_url="http://x") as client:
        await snapshots.take()
        for _ in range(5):
            assert (await client.get(path)).status_code == 200
        assert ledger.asked == 1
        clock.advance(FRESH_SECONDS)
        await client.get(path)
        assert ledger.asked == 2
