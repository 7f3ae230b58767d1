"""Policies' status: gathered here, computed by extender.status, written by the leader only."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from adapters.api import POLICIES, ClusterAPI
from adapters.kubernetes import decode
from adapters.kubernetes.events import EventWriter
from adapters.kubernetes.status import StatusWriter
from adapters.loops import last_of
from extender import status
from extender.awaiting import Awaiting
from extender.buffering import Account, lacks
from extender.buffers import Buffers
from extender.catalog import Catalog
from extender.guarding import Guard, Guards, Recent
from extender.lives import Lives
from extender.metrics import Metrics
from extender.node_reports import NodeReports
from extender.view import View
from ledger.decisions import DemandReport
from ledger.ledger import Ledger
from qos.cluster.objects import Demand
from qos.cluster.policy import Policy

OVERLAP_SECONDS: Final = 5.0
"""Overlaps take a look at the labels of every pod, so they are not computed at each change."""
_PODS_AT_ONCE: Final = 2_000
"""Pods looked at before others may run: a millisecond or two."""


class PolicyStatus:
    """Gathers what a policy's status is computed from, and has it written. From it follow buffers, too, and
    for which slots placeholders wait.

    `clock`: monotonic, for rates; `wall`: for what is written or compared with times of Kubernetes.
    """

    def __init__(
        self,
        api: ClusterAPI,
        ledger: Ledger,
        catalog: Catalog,
        view: View,
        guarding: Guards,
        events: EventWriter,
        metrics: Metrics,
        *,
        reports: NodeReports,
        buffers: Buffers | None = None,
        awaiting: Awaiting | None = None,
        owner_priority: Callable[[Demand], int | None] = lambda _demand: None,
        owner_wait: float,
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._ledger = ledger
        self._catalog = catalog
        self._view = view
        self._guarding = guarding
        self._reports = reports
        self._buffers, self._awaiting = buffers, awaiting
        self._follows = buffers is not None or awaiting is not None
        self._owner_priority = owner_priority
        self._lives = Lives(api, ledger)
        self._owner_wait = owner_wait
        self._clock, self._wall = clock, wall
        self._writer = StatusWriter(
            api,
            POLICIES,
            read=decode.policy,
            watched=catalog.policies.get,
            events=events,
            notices=status.notices,
            count=metrics.status_write,
            clock=clock,
            wall=wall,
        )
        self._written: dict[str, tuple[status.Facts, bool, Mapping[str, Any]]] = {}
        self._overlaps: Mapping[str, str] = {}
        self._overlaps_of: set[str] = set()
        self._overlaps_until = 0.0

    async def run_once(self) -> int:
        """Write what is due; the number of policies that have to wait for a later call."""
        facts = await self._facts()
        return await self._writer.run_once((one.policy, partial(self._compute, one)) for one in facts)

    def _compute(self, facts: status.Facts, now: float) -> Mapping[str, Any]:
        """What is written already, as long as nothing has changed of what it was computed from: of time only
        whether the policy's end has come.
        """
        policy, ended = facts.policy, facts.policy.expired(now)
        known = self._written.get(policy.key)
        if known is not None and known[:2] == (facts, ended):
            return known[2]
        computed = status.compute(facts, now)
        if facts.remembered is None and all(policy.status.get(name) == computed[name] for name in computed):
            self._written[policy.key] = facts, ended, computed
        else:
            self._written.pop(policy.key, None)
        return computed

    async def _facts(self) -> list[status.Facts]:
        reports = await last_of(self._ledger.gather_report())
        overlaps = await self._overlapping()
        waiting, long = await last_of(self._waiting_owners())
        recent = self._guarding.recent(self._wall())
        exposed = self._ledger.exposed(recent.bypassed)
        accounts = self._accounts(reports, waiting) if self._follows else []
        if self._awaiting is not None:
            self._awaiting.follow(accounts)
        if self._buffers is not None:
            await self._buffers.follow(accounts)
        found = []
        for key, resolved in [*self._catalog.resolved.items()]:
            if key not in self._catalog.policies:
                continue  # it went while another was looked up
            policy = self._writer.newest(self._catalog.policies[key])
            remembered = None
            if policy.remembers and isinstance(resolved, Demand):
                remembered = await self._lives.advanced(policy, resolved, self._wall())
                await asyncio.sleep(0)  # a thousand pods take a millisecond or two
            found.append(
                status.Facts(
                    policy=policy,
                    resolved=resolved,
                    report=reports.get(key),
                    guard=self._guard(policy, recent, exposed),
                    overlap=overlaps.get(key, ""),
                    waiting=long[key],
                    postponed=self._catalog.postponed.get(key),
                    delivery=self._reports.delivery(key, policy.uid),
                    remembered=remembered,
                    unread=self._catalog.unread(policy),
                    unscaled=policy.headroom and self._catalog.ceiling(policy) is None,
                    owner_priority=self._owner_priority(resolved) if isinstance(resolved, Demand) else None,
                    provisioned=self._buffers.condition(policy) if self._buffers else None,
                )
            )
        return found

    def _accounts(self, reports: Mapping[str, DemandReport], waiting: Mapping[str, int]) -> list[Account]:
        accounts = [
            Account(policy, self._catalog.resolved[key], reports.get(key), waiting[key], 0)
            for key, policy in self._catalog.policies.items()
            if key in self._catalog.resolved
        ]
        asking = {one.policy.key: lacks(one.report) for one in accounts if one.report and self._asks(one)}
        given = self._ledger.within_cap(asking)
        return [replace(one, lacking=given.get(one.policy.key, 0)) for one in accounts]

    def _asks(self, one: Account) -> bool:
        """Whether anything is made for the slots that it lacks."""
        return self._buffers is not None or (self._awaiting is not None and self._awaiting.waits(one))

    def _guard(self, policy: Policy, recent: Recent, exposed: Collection[str]) -> Guard:
        if lacking := self._catalog.keepers.lacking(policy):
            return Guard(False, "KeeperNotInstalled", lacking)
        return self._guarding.judge(policy.key, recent, exposed)

    async def _overlapping(self) -> Mapping[str, str]:
        now, policies = self._clock(), set(self._catalog.resolved)
        if now >= self._overlaps_until or policies != self._overlaps_of:
            self._overlaps = await last_of(self._ledger.gather_overlaps())
            self._overlaps_until, self._overlaps_of = now + OVERLAP_SECONDS, policies
        return self._overlaps

    def _waiting_owners(self) -> Iterator[tuple[Counter[str], Counter[str]]]:
        """How many pods of each policy find no node now, and have found none for a while, in steps; the last
        is all of it.
        """
        before = self._wall() - self._owner_wait
        pods, waiting, long = list(self._view.unschedulable.values()), Counter[str](), Counter[str]()
        for start in range(0, len(pods) + 1, _PODS_AT_ONCE):
            for pod in pods[start : start + _PODS_AT_ONCE]:
                is_long = pod.unschedulable_since <= before
                if not (is_long or self._follows):
                    continue
                policy = self._ledger.policy_of(pod)
                waiting[policy] += 1
                long[policy] += is_long
            yield waiting, long

    def forget(self, key: str) -> None:
        """The policy is gone."""
        self._written.pop(key, None)
        self._writer.forget(key)
        self._lives.forget(key)
