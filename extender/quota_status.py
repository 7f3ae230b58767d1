"""What the leader writes into the status of ElasticQuotas: how each stands.

`used` is upstream's field. The others are written where the definition keeps them: upstream's does not, as
the API server's answer shows.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from adapters.api import QUOTAS, APIError, ClusterAPI, NotFound, Unreachable
from adapters.kubernetes.kept_status import patch_status
from adapters.pace import Pace
from extender.metrics import Metrics
from ledger.ledger import Ledger
from qos.cluster.quota import ElasticQuota
from qos.quantity import render
from quota.account import Standing
from quota.limits import Limits

log = logging.getLogger(__name__)

PER_SECOND: Final = 10
_QUOTAS_A_STEP: Final = 50
_USED: Final = "used"
_MORE: Final = ("held", "request", "runtime", "lent", "borrowed", "owed", "due")

Status = dict[str, dict[str, str]]


class _Answer(msgspec.Struct):
    status: dict[str, Any] = msgspec.field(default_factory=dict)


_decode = msgspec.json.Decoder(_Answer).decode


def status_of(standings: Mapping[str, Standing]) -> Status:
    """How a quota stands, by field and resource; a resource that its max does not name has no runtime."""
    return {
        field: {
            name: render(name, amount)
            for name, stands in standings.items()
            if (amount := getattr(stands, field)) is not None
        }
        for field in (_USED, *_MORE)
    }


class QuotaStatus:
    """Writes what has changed since it was written, at most ten a second."""

    def __init__(
        self,
        api: ClusterAPI,
        ledger: Ledger,
        limits: Limits,
        metrics: Metrics,
        *,
        clock: Callable[[], float],
    ) -> None:
        self._api, self._ledger, self._limits, self._metrics = api, ledger, limits, metrics
        self._pace = Pace(PER_SECOND, PER_SECOND, clock)
        self._written: dict[str, Status] = {}
        self._only_used = False
        self._tried: dict[str, int] = {}
        self._serial = itertools.count(1)

    async def run_once(self) -> None:
        """Write what the rate allows; the rest comes first in the next pass."""
        self._ledger.settle_quotas()
        account = self._limits.account
        quotas = [one for one in account.quotas() if one.uid]
        self._written = {one.uid: self._written[one.uid] for one in quotas if one.uid in self._written}
        self._tried = {one.uid: self._tried.get(one.uid, 0) for one in quotas}
        for number, one in enumerate(sorted(quotas, key=lambda one: self._tried[one.uid])):
            if number % _QUOTAS_A_STEP == 0:
                await asyncio.sleep(0)
            if one.key not in account.tree.nodes:
                continue
            status = status_of(account.standing(one.key))
            if status == self._written.get(one.uid):
                continue
            if not self._pace.take():
                return
            self._tried[one.uid] = next(self._serial)
            await self._write(one, status)

    async def _write(self, one: ElasticQuota, status: Status) -> None:
        before = self._written.get(one.uid, {})
        said = {
            field: dict.fromkeys(before.get(field, ()), None)
            | amounts  # null takes out what is not named any more
            for field, amounts in status.items()
            if field == _USED or not self._only_used
        }
        try:
            raw = await patch_status(self._api, QUOTAS, one.namespace, one.name, one.uid, said)
        except NotFound:
            return
        except (APIError, Unreachable) as error:
            self._metrics.quota_status("failed")
            log.info("status of a quota not written quota=%s error=%s", one.key, error)
            return
        self._metrics.quota_status("written")
        self._written[one.uid] = status
        kept = _decode(raw).status
        if not self._only_used and not kept.keys() & set(_MORE) and status[_USED]:
            self._only_used = True
            log.info("the definition of ElasticQuota keeps of their status %r alone", _USED)
