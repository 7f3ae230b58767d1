"""Who comes first where the status of more quotas changes than may be written."""

from __future__ import annotations

from dataclasses import replace

from adapters.memory import MemoryAPI
from extender.metrics import Metrics
from extender.quota_status import PER_SECOND, QuotaStatus
from ledger.decisions import Mode
from ledger.ledger import Ledger
from quota.limits import Limits
from tests.quota.builders import quota


async def test_those_that_change_all_the_time_keep_no_others_from_being_written() -> None:
    """None of them is there any more, so none is ever written."""
    limits, api, now = Limits(), MemoryAPI(), 0.0
    ledger = Ledger(Mode.STRICT, cap_percent=100, quotas=limits)
    count = 3 * PER_SECOND
    for number in range(count):
        ledger.set_quota(replace(quota(f"q{number}", {"cpu": 1}), uid=f"u{number}"))
    status = QuotaStatus(api, ledger, limits, Metrics(), clock=lambda: now)
    for _ in range(3):
        await status.run_once()
        now += 1
    assert len({name for verb, _, name in api.calls if verb == "patch"}) == count
