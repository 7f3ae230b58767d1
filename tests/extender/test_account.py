"""However many look, and however often, the ledger is asked about once a second."""

from __future__ import annotations

import httpx
import pytest

from extender.account import FRESH_SECONDS, SHARE, Account
from extender.metrics import Metrics
from extender.readiness import Readiness
from extender.rest import app
from ledger.decisions import DemandReport, Mode


class Counting:
    """A ledger that counts how often it is asked, and takes its time."""

    def __init__(self, clock, takes=0.0):
        self.clock, self.takes, self.asked = clock, takes, 0

    def report(self):
        self.asked += 1
        self.clock.advance(self.takes)
        return {"default/a": DemandReport("default/a", 9, 0, self.asked, ())}

    def gauges(self):
        return {"holds": self.asked}


def test_it_is_asked_once_until_the_answer_is_old(clock):
    ledger = Counting(clock)
    account = Account(ledger, clock)
    for _ in range(100):
        assert account.report()["default/a"].held == account.gauges()["holds"] == 1
    clock.advance(FRESH_SECONDS)
    assert account.report()["default/a"].held == account.gauges()["holds"] == 2


def test_looking_takes_a_twentieth_of_the_time_at_most(clock):
    ledger = Counting(clock, takes=0.25)
    account, began = Account(ledger, clock), clock()
    while clock() - began < 100:
        account.report()
        clock.advance(0.125)
    assert ledger.asked * 0.25 <= 100 * SHARE + 0.25
    assert ledger.asked >= 15


def test_a_renewed_account_is_asked_for_at_once(clock):
    ledger = Counting(clock)
    account = Account(ledger, clock)
    account.report()
    account.renew()
    assert account.gauges()["holds"] == 2


@pytest.mark.parametrize("path", ["/holds", "/metrics"])
async def test_readers_and_scrapers_share_one_look(clock, path):
    ledger, metrics = Counting(clock), Metrics()
    account = Account(ledger, clock)
    metrics.watch_ledger(account.report, account.gauges)
    service = app(Mode.GUARD, account, Readiness({}, clock), metrics)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(service), base_url="http://x") as client:
        account.report()
        for _ in range(5):
            assert (await client.get(path)).status_code == 200
        assert ledger.asked == 1
        clock.advance(FRESH_SECONDS)
        await client.get(path)
        assert ledger.asked == 2
