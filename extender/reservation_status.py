"""What the status of Koordinator's Reservations says: computed here, and written by the leader only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from adapters.api import RESERVATIONS, ClusterAPI
from adapters.kubernetes.conditions import Announced, Condition, Notice, notices, timestamp
from adapters.kubernetes.events import EventWriter
from adapters.kubernetes.reserving import reservation
from adapters.kubernetes.status import StatusWriter
from adapters.loops import last_of
from extender.metrics import Metrics
from extender.reservations import Reservations
from extender.status import unplaced_text
from extender.view import View
from ledger.decisions import DemandReport
from ledger.ledger import Ledger
from ledger.reservations import Use
from ledger.reserving import Account
from qos import keys, quantity
from qos.cluster.objects import Demand, Resources
from qos.cluster.precedence import Problem
from qos.cluster.reservation import AVAILABLE, FAILED, PENDING, SUCCEEDED, Reservation

SCHEDULED: Final = "Scheduled"
READY: Final = keys.READY
HELD: Final = keys.HELD
HONOURED: Final = "Honoured"
"""Ours: whether all that the Reservation states has its effect here."""
_ANNOUNCED: Final = {
    SCHEDULED: Announced("False", "Scheduled"),
    HELD: Announced("False", "Held"),
    HONOURED: Announced("False"),
}
_LONGEST_MESSAGE: Final = 1024
_AT_ONCE: Final = 200
"""Accounts looked at before others may run: some milliseconds."""


@dataclass(frozen=True, slots=True)
class Facts:
    """All that a Reservation's status is computed from. `resolved` None: it is over, or not looked at yet.

    `node_known`: the node that its status names is there.
    """

    reservation: Reservation
    resolved: Demand | Problem | None
    account: Account = field(default_factory=Account)
    report: DemandReport | None = None
    node_known: bool = True


def compute(facts: Facts, now: float) -> dict[str, Any]:
    """The status, as far as it is ours; {} where nothing of it changes any more."""
    one = facts.reservation
    if one.over:
        return {}
    phase, node, conditions = _phase(facts, now)
    status: dict[str, Any] = {"phase": phase}
    if node:
        status["nodeName"] = node
        status["allocatable"] = shown(one.vector)
        first = facts.account.used_up
        uses = [first] if first else [*facts.account.uses]
        status["allocated"] = allocated(one.vector, uses)
        status["currentOwners"] = owners(uses)
    if one.unheeded:
        text = "; ".join(one.unheeded)[:_LONGEST_MESSAGE]
        conditions.append(Condition(HONOURED, "False", "NotHonoured", text))
    status["conditions"] = stamped(conditions, one.status, now)
    return status


def _phase(facts: Facts, now: float) -> tuple[str, str, list[Condition]]:
    """The phase, the node, and the conditions that go with it."""
    one, node = facts.reservation, facts.reservation.node or facts.account.node
    there = [Condition(SCHEDULED, "True", "Scheduled", "")] if node else []
    if facts.account.used_up is not None:
        return SUCCEEDED, node, [*there, Condition(READY, "False", "Succeeded", "its owner has used it")]
    if one.expired(now):
        return FAILED, node, [*there, Condition(READY, "False", "Expired", "its time is over")]
    if one.node and not facts.node_known:
        text = f"node {one.node} is gone"
        return FAILED, node, [*there, Condition(READY, "False", "Expired", text)]
    if not node:
        return PENDING, "", [Condition(SCHEDULED, "False", "Unschedulable", _why_not(facts))]
    conditions = [*there, Condition(READY, "True", "Available", "")]
    if facts.account.lacking or isinstance(facts.resolved, Problem):
        text = f"nothing is held on node {node}: {_why_not(facts)}"
        conditions.append(Condition(HELD, "False", "NotHeld", text))
    return AVAILABLE, node, conditions


def _why_not(facts: Facts) -> str:
    if isinstance(facts.resolved, Problem):
        return facts.resolved.message
    if facts.report is None or not facts.report.unplaced:
        return "it is being placed"
    return "; ".join(unplaced_text(one) for one in facts.report.unplaced)[:_LONGEST_MESSAGE]


def shown(amounts: Resources) -> dict[str, str]:
    """A resource list; what every pod takes, one pod, is left out."""
    return {
        name: quantity.render(name, amount) for name, amount in sorted(amounts.items()) if name != keys.PODS
    }


def allocated(reserved: Resources, uses: list[Use]) -> dict[str, str]:
    """What its owners take of what is reserved, of which no resource is left out."""
    sums = {name: sum(use.requests.get(name, 0) for use in uses) for name in reserved}
    return shown(sums)


def owners(uses: list[Use]) -> list[dict[str, str]]:
    """Its owners, by UID."""
    pods = sorted((use.pod for use in uses), key=lambda pod: pod.uid)
    return [{"namespace": pod.namespace, "name": pod.name, "uid": pod.uid} for pod in pods]


def stamped(conditions: list[Condition], status: Mapping[str, Any], now: float) -> list[dict[str, str]]:
    """Conditions as Koordinator's CRD has them; of those that stay, times are as they were."""
    earlier = {one.get("type"): one for one in status.get("conditions") or ()}
    found = []
    for one in conditions:
        said = {"type": one.type, "status": one.status, "reason": one.reason, "message": one.message}
        was = earlier.get(one.type, {})
        same = all(was.get(name, "") == text for name, text in said.items())
        stayed = was.get("status") == one.status and was.get("lastTransitionTime")
        stamp = timestamp(now)
        said = {name: text for name, text in said.items() if text}
        said["lastProbeTime"] = was.get("lastProbeTime") or stamp if same else stamp
        said["lastTransitionTime"] = was["lastTransitionTime"] if stayed else stamp
        found.append(said)
    return found


def news(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Notice]:
    """The Events for a change of status."""
    return notices(
        before, {"conditions": [{"message": "", **one} for one in after["conditions"]]}, _ANNOUNCED
    )


class ReservationStatus:
    """Has the status of all Reservations written. `clock` and `wall` as in StatusWriter."""

    def __init__(
        self,
        api: ClusterAPI,
        ledger: Ledger,
        reservations: Reservations,
        view: View,
        events: EventWriter,
        metrics: Metrics,
        *,
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._ledger = ledger
        self._reservations = reservations
        self._view = view
        self._writer = StatusWriter(
            api,
            RESERVATIONS,
            read=reservation,
            watched=reservations.known.get,
            events=events,
            notices=news,
            count=metrics.status_write,
            clock=clock,
            wall=wall,
        )

    async def run_once(self) -> int:
        """Write what is due; the number of Reservations that have to wait for a later call."""
        if not self._reservations.known:
            return 0
        reports = await last_of(self._ledger.gather_report()) if await self._any_homeless() else {}
        return await self._writer.run_once(self._due(reports))

    async def _any_homeless(self) -> bool:
        """Whether one must say why it is not held: a report of all demands takes a while."""
        for done, one in enumerate([*self._reservations.known.values()]):
            if done % _AT_ONCE == 0:
                await asyncio.sleep(0)
            if not one.over and self._ledger.reservation(one.key).lacking:
                return True
        return False

    def _due(
        self, reports: Mapping[str, DemandReport]
    ) -> Iterator[tuple[Reservation, Callable[[float], Mapping[str, Any]]]]:
        for seen in [*self._reservations.known.values()]:
            one = self._writer.newest(seen)
            if not one.over:
                yield one, partial(self._compute, one, reports)

    def _compute(
        self, one: Reservation, reports: Mapping[str, DemandReport], now: float
    ) -> Mapping[str, Any]:
        """As things are by now: other writes may have taken a while, and holds have moved meanwhile."""
        facts = Facts(
            one,
            self._reservations.resolved.get(one.key),
            self._ledger.reservation(one.key),
            reports.get(one.key),
            one.node in self._view.nodes,
        )
        return compute(facts, now)

    def forget(self, key: str) -> None:
        """The Reservation is gone."""
        self._writer.forget(key)
