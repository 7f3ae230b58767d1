"""Writes policies' status: by the leader only, only what changed, and not too often."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from adapters.api import POLICIES, APIError, ClusterAPI, Conflict, NotFound, Unreachable
from adapters.kubernetes import decode
from adapters.loops import last_of
from extender import status
from extender.catalog import Catalog
from extender.events import EventWriter, Regarding
from extender.guarding import Guarding
from extender.metrics import Metrics
from extender.node_reports import NodeReports
from extender.pace import Pace
from extender.view import View
from ledger.ledger import Ledger
from qos import keys
from qos.cluster.policy import Policy

log = logging.getLogger(__name__)

POLICY_INTERVAL: Final = 0.5
"""Seconds between two writes of one policy's status: at most 2 a second."""
ALL_RATE: Final = 7
ALL_BURST: Final = 3
"""Burst and rate together: at most 10 writes in any second, of all policies."""
RETRY_SECONDS: Final = 2.0
OVERLAP_SECONDS: Final = 5.0
"""Overlaps take a look at the labels of every pod, so they are not computed at each change."""
_AT_ONCE: Final = 20
_PODS_AT_ONCE: Final = 2_000
"""Policies and pods looked at before others may run: a millisecond or two."""


class StatusWriter:
    """Compares what is with what the status says, and patches with its resourceVersion (trap T13).

    `clock`: monotonic, for rates; `wall`: for what is written or compared with times of Kubernetes.
    """

    def __init__(
        self,
        api: ClusterAPI,
        ledger: Ledger,
        catalog: Catalog,
        view: View,
        guarding: Guarding,
        events: EventWriter,
        metrics: Metrics,
        *,
        reports: NodeReports,
        owner_wait: float,
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._api = api
        self._ledger = ledger
        self._catalog = catalog
        self._view = view
        self._guarding = guarding
        self._events = events
        self._metrics = metrics
        self._reports = reports
        self._owner_wait = owner_wait
        self._clock, self._wall = clock, wall
        self._pace = Pace(ALL_RATE, ALL_BURST, clock)
        self._not_before: dict[str, float] = {}
        self._newest: dict[str, tuple[str, Policy]] = {}
        self._overlaps: Mapping[str, str] = {}
        self._overlaps_of: set[str] = set()
        self._overlaps_until = 0.0

    async def run_once(self) -> int:
        """Write what is due; the number of policies that have to wait for a later call."""
        waiting = 0
        for done, facts in enumerate(await self._facts()):
            if done % _AT_ONCE == 0:
                await asyncio.sleep(0)
            now = self._clock()
            computed = status.compute(facts, self._wall())
            if all(facts.policy.status.get(name) == value for name, value in computed.items()):
                continue
            if now < self._not_before.get(facts.policy.key, 0.0) or not self._pace.take():
                waiting += 1
                continue
            self._not_before[facts.policy.key] = now + POLICY_INTERVAL
            await self._write(facts.policy, computed)
        return waiting

    async def _facts(self) -> list[status.Facts]:
        reports = await last_of(self._ledger.gather_report())
        overlaps = await self._overlapping()
        waiting = await last_of(self._waiting_owners())
        recent = self._guarding.recent(self._wall())
        exposed = self._ledger.exposed(recent.bypassed)
        found = []
        for key, resolved in self._catalog.resolved.items():
            policy = self._newest_of(key)
            found.append(
                status.Facts(
                    policy=policy,
                    resolved=resolved,
                    report=reports.get(key),
                    guard=self._guarding.judge(key, recent, exposed),
                    overlap=overlaps.get(key, ""),
                    waiting=waiting[key],
                    postponed=self._catalog.postponed.get(key),
                    delivery=self._reports.delivery(key, policy.uid),
                )
            )
        # Those that have waited longest first: a busy policy must not starve the others.
        return sorted(found, key=lambda facts: self._not_before.get(facts.policy.key, 0.0))

    async def _overlapping(self) -> Mapping[str, str]:
        now, policies = self._clock(), set(self._catalog.resolved)
        if now >= self._overlaps_until or policies != self._overlaps_of:
            self._overlaps = await last_of(self._ledger.gather_overlaps())
            self._overlaps_until, self._overlaps_of = now + OVERLAP_SECONDS, policies
        return self._overlaps

    def _newest_of(self, key: str) -> Policy:
        """The policy as the watch has it, or as our last write left it while the watch has not shown that."""
        seen = self._catalog.policies[key]
        was, written = self._newest.get(key, ("", seen))
        if was == seen.resource_version:
            return written
        self._newest.pop(key, None)
        return seen

    def _waiting_owners(self) -> Iterator[Counter[str]]:
        """How many pods of each policy found no node for a while, in steps; the last is all of it."""
        before = self._wall() - self._owner_wait
        pods, waiting = list(self._view.unschedulable.values()), Counter[str]()
        for start in range(0, len(pods) + 1, _PODS_AT_ONCE):
            long = (pod for pod in pods[start : start + _PODS_AT_ONCE] if pod.unschedulable_since <= before)
            waiting.update(map(self._ledger.policy_of, long))
            yield waiting

    async def _write(self, policy: Policy, computed: dict[str, Any]) -> None:
        body = {"metadata": {"resourceVersion": policy.resource_version}, "status": computed}
        was = self._watched(policy.key)
        try:
            raw = await self._api.patch(POLICIES, policy.namespace, policy.name, body, subresource="status")
        except Conflict:
            self._metrics.status_write("conflict")
            await self._refresh(policy)
            return
        except NotFound:
            self._metrics.status_write("gone")
            return
        except (APIError, Unreachable) as error:
            self._metrics.status_write("failed")
            self._not_before[policy.key] = self._clock() + RETRY_SECONDS
            log.warning("status not written policy=%s error=%s", policy.key, error)
            return
        self._metrics.status_write("written")
        self._remember(policy.key, raw, was, computed)
        about = Regarding(keys.API_VERSION, POLICIES.kind, policy.namespace, policy.name, policy.uid)
        for notice in status.notices(policy.status, computed):
            self._events.say(about, *notice)

    async def _refresh(self, policy: Policy) -> None:
        """Another resourceVersion than ours: read it, the next call tries again."""
        was = self._watched(policy.key)
        try:
            self._remember(policy.key, await self._api.get(POLICIES, policy.namespace, policy.name), was)
        except (APIError, Unreachable) as error:
            log.info("policy not read policy=%s error=%s", policy.key, error)

    def _watched(self, key: str) -> str:
        """The resourceVersion that the watch has shown; empty when the policy is gone."""
        seen = self._catalog.policies.get(key)
        return seen.resource_version if seen is not None else ""

    def _remember(
        self, key: str, raw: bytes, was: str, computed: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        """Take the answer to a call; `was` is what the watch had shown before it.

        What was written counts as there: an older CRD drops fields that it does not know, at each try.
        """
        if self._watched(key) != was:
            return  # it has moved on during the call, perhaps past this answer
        try:
            answered = decode.policy(raw)
        except decode.DecodeError as error:
            log.warning("policy not readable policy=%s error=%s", key, error)
        else:
            self._newest[key] = was, replace(answered, status={**answered.status, **computed})

    def forget(self, key: str) -> None:
        """The policy is gone."""
        self._newest.pop(key, None)
        self._not_before.pop(key, None)
