"""A policy's status from what is known: pure, so that every condition is a table test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from adapters.kubernetes.conditions import Announced, Condition, Notice, stamped, timestamp
from adapters.kubernetes.conditions import notices as changes
from extender import delivery
from extender.delivery import Delivery
from extender.guarding import Guard
from ledger.decisions import DemandReport, Unplaced
from qos import keys, quantity
from qos.cluster.budget import BUDGET_EXCEEDED, BUDGET_FORBIDS, named
from qos.cluster.objects import Demand, OwnerFit, PlacementMode, Requirement, Selector
from qos.cluster.policy import Policy
from qos.cluster.precedence import Problem
from qos.cluster.remembered import Remembered

MOST_HOLDS: Final = 20
MOST_PINNED: Final = 1_000
MOST_UNPLACED: Final = 16
MOST_RESOURCES: Final = 32
LONGEST_DETAIL: Final = 1024


@dataclass(frozen=True, slots=True)
class Facts:
    """All that a policy's status is computed from; `report` None before the ledger knows the policy.

    `overlap`: key of the policy that has pods which this one selects too, or empty.
    `unscaled`: it asks for headroom up to what an autoscaler may scale to, and none is known.
    `unread`: why its workload is no longer read.
    `remembered`: what is to be written of slots that are used up, or outlive their pods; None: nothing new.
    `provisioned`: what its buffer says, where autoscalers are asked for nodes. `owner_priority`: what its
    owners are raised to while nobody hands holds over.
    `waiting`: owners that stay unschedulable. `postponed`: the problem that the policy has when the grace is
    over.
    """

    policy: Policy
    resolved: Demand | Problem
    report: DemandReport | None
    guard: Guard
    overlap: str = ""
    waiting: int = 0
    postponed: Problem | None = None
    delivery: Delivery = field(default_factory=Delivery)
    remembered: Remembered | None = None
    unscaled: bool = False
    unread: str = ""
    provisioned: Condition | None = None
    owner_priority: int | None = None


def compute(facts: Facts, now: float) -> dict[str, Any]:
    """The whole status; lastTransitionTime is kept where a condition's status did not change."""
    report = facts.report
    status: dict[str, Any] = {
        "observedGeneration": facts.policy.generation,
        "selector": selector_text(facts.policy.selector),
        "slots": _slots(facts, now),
        "slot": _slot(facts.resolved),
        "unplaced": [_unplaced(one) for one in (report.unplaced if report else ())][:MOST_UNPLACED],
        "holds": _largest(report.holds if report else (), facts.policy.mode),
    }
    status |= _lives(facts)
    if facts.policy.survives and report is not None:
        status["survivesNodeFailures"] = report.survives
    if facts.owner_priority is not None:
        status["ownerPriority"] = facts.owner_priority
    status["conditions"] = stamped(conditions(facts, now), facts.policy.status, facts.policy.generation, now)
    return status


def conditions(facts: Facts, now: float) -> Iterator[Condition]:
    """All conditions, in the order in which kubectl describe shall show them."""
    feasible, held = _feasible(facts), _held(facts, now)
    yield _ready(facts, held, now)
    yield feasible
    yield held
    guarded = "True" if facts.guard.guarded else "Unknown" if facts.guard.unknown else "False"
    yield Condition(keys.GUARDED, guarded, facts.guard.reason, facts.guard.message)
    yield _usable(facts)
    if facts.overlap:
        text = f"{facts.overlap} comes first and has pods that this policy selects too"
        yield Condition(keys.OVERLAPPING, "True", "SelectorOverlap", text)
    else:
        yield Condition(keys.OVERLAPPING, "False", "NoOverlap", "no other policy has this one's pods")
    if facts.policy.expires is not None:
        yield _expired(facts.policy.expires, now)
    bound = facts.report.pods if facts.report else 0
    if facts.provisioned is not None:
        yield facts.provisioned
    yield Condition(keys.APPLIED, *delivery.applied(facts.delivery, bound))
    yield Condition(keys.VERIFIED, *delivery.verified(facts.delivery, bound))


def _expired(expires: float, now: float) -> Condition:
    if expires <= now:
        return Condition(keys.EXPIRED, "True", "EndHasCome", f"since {timestamp(expires)} nothing is held")
    return Condition(keys.EXPIRED, "False", "EndToCome", f"holds are released at {timestamp(expires)}")


_NOTHING_HELD = "its end has come: nothing is held, and pods keep their floors"


def _ready(facts: Facts, held: Condition, now: float) -> Condition:
    if isinstance(facts.resolved, Problem):
        return Condition(keys.READY, "False", facts.resolved.reason, facts.resolved.message)
    if facts.policy.suspend:
        return Condition(keys.READY, "True", "Suspended", "spec.suspend is true: nothing is held")
    if facts.policy.expired(now):
        return Condition(keys.READY, "True", "Expired", _NOTHING_HELD)
    if facts.postponed is not None:
        text = f"{facts.postponed.message}; what was held before is held for a grace"
        return Condition(keys.READY, "False", "HeldByGrace", text)
    if facts.unread:
        text = f"{facts.unread}; slots are as they were read last"
        return Condition(keys.READY, "False", "ScaleTargetUnread", text)
    if facts.unscaled and facts.policy.scale_target is not None:
        named = f"{facts.policy.scale_target.kind} {facts.policy.namespace}/{facts.policy.scale_target.name}"
        text = f"no HorizontalPodAutoscaler is known that scales {named}: slots are its replicas"
        return Condition(keys.READY, "False", "AutoscalerNotFound", text)
    if held.status == "True":
        return Condition(keys.READY, "True", "AsAsked", "every slot is filled or held")
    return Condition(keys.READY, held.status, held.reason, held.message)


def _feasible(facts: Facts) -> Condition:
    if isinstance(facts.resolved, Problem):
        return Condition(keys.FEASIBLE, "Unknown", facts.resolved.reason, facts.resolved.message)
    if facts.report is None:
        return Condition(keys.FEASIBLE, "Unknown", "NotComputed", "the ledger has not placed it yet")
    if not facts.report.unplaced:
        return Condition(keys.FEASIBLE, "True", "EverySlotHasAPlace", "every slot has a place")
    reasons = sorted({one.reason for one in facts.report.unplaced}, key=_reason_rank)
    message = "; ".join(unplaced_text(one) for one in facts.report.unplaced)
    return Condition(keys.FEASIBLE, "False", reasons[0], message)


def _held(facts: Facts, now: float) -> Condition:
    if isinstance(facts.resolved, Problem):
        return Condition(keys.HELD, "False", facts.resolved.reason, facts.resolved.message)
    if facts.policy.suspend:
        return Condition(keys.HELD, "False", "Suspended", "spec.suspend is true: nothing is held")
    if facts.policy.expired(now):
        return Condition(keys.HELD, "False", "Expired", _NOTHING_HELD)
    report = facts.report
    if report is None:
        return Condition(keys.HELD, "Unknown", "NotComputed", "the ledger has not placed it yet")
    if report.missing:
        why = "; ".join(unplaced_text(one) for one in report.unplaced)
        text = f"{report.missing} of {report.desired} slots are neither filled nor held: {why}"
        return Condition(keys.HELD, "False", "SlotsUnplaced", text)
    return Condition(keys.HELD, "True", "EverySlotHeld", "every slot that is not filled is held")


def _usable(facts: Facts) -> Condition:
    if facts.waiting and facts.report is not None and facts.report.held:
        text = (
            "owners stay unschedulable although slots are held: see their events; "
            "usually their requests exceed the floor, or their placement excludes the nodes with holds"
        )
        if facts.policy.owner_fit is OwnerFit.RESTRICTED:
            text += "; with ownerFit Restricted, a pod that requests more than status.slot fills none"
        return Condition(keys.SLOTS_USABLE, "False", "OwnersWait", text)
    return Condition(keys.SLOTS_USABLE, "True", "NoOwnerWaits", "no owner waits while slots are held")


_RANK = {
    reason: rank
    for rank, reason in enumerate(
        (
            "Insufficient",
            "Fragmented",
            "NoNode",
            "NodeCannotEnforce",
            "VolumeNodeAffinity",
            "Spread",
            "MaxSlotsPerNode",
            "PoolCapReached",
            "CapReached",
            "BudgetExceeded",
            "BudgetForbids",
        )
    )
}


def _reason_rank(reason: str) -> tuple[int, str]:
    return _RANK.get(reason, len(_RANK)), reason


def unplaced_text(one: Unplaced) -> str:
    """Such as `memory: 8Gi missing for 2 slots`."""
    slots = f"{one.count} slot" if one.count == 1 else f"{one.count} slots"
    if one.reason in (BUDGET_EXCEEDED, BUDGET_FORBIDS):
        return f"{slots} above {one.detail}" if one.resource else f"{slots}: {one.detail}"
    if one.resource and one.missing:
        amount = quantity.render(one.resource, one.missing)
        why = {"CapReached": " under the installation-wide cap", "Fragmented": " on any single node"}
        return f"{one.resource}: {amount} missing for {slots}{why.get(one.reason, '')}"
    if one.reason == "NodeCannotEnforce":
        return f"nodes do not enforce every promise for {slots}: {one.detail}"
    if one.reason == "Spread":
        return f"spread or pod affinity lets no more go where there is room, for {slots}: {one.detail}"
    if one.reason == "VolumeNodeAffinity":
        return f"no room where volumes let pods run, for {slots}: {one.detail}"
    texts = {
        "NoNode": "no node is eligible",
        "MaxSlotsPerNode": "every eligible node is at placement.maxSlotsPerNode",
        "CapReached": "the installation-wide cap is reached",
        "PoolCapReached": "the cap is reached in every pool of nodes that has room",
        "Fragmented": "there is room in all, but on no single node",
    }
    return f"{texts.get(one.reason, one.reason)} for {slots}"


def _slots(facts: Facts, now: float) -> dict[str, int]:
    report, policy = facts.report, facts.policy
    consumed = (facts.remembered or policy.remembered).consumed if policy.once else 0
    if report is None:
        return {"desired": 0, "spare": 0, "filled": 0, "held": 0, "unplaced": 0, "consumed": consumed}
    desired = report.desired
    resolved = facts.resolved if isinstance(facts.resolved, Demand) else None
    named = policy.remembers or policy.survives > 0
    if resolved is not None and named and not (policy.suspend or policy.expired(now)):
        desired = resolved.asked or 0
    return {
        "desired": desired,
        "spare": resolved.spare if resolved is not None else 0,
        "filled": report.filled,
        "held": report.held,
        "unplaced": report.missing,
        "consumed": consumed,
    }


def _lives(facts: Facts) -> dict[str, Any]:
    """Who fills slots, and which slots outlive their pods; of other policies what was there is taken out."""
    if not facts.policy.remembers:
        return {name: [] for name in ("filledBy", "outliving") if facts.policy.status.get(name)}
    known = facts.remembered or facts.policy.remembered
    return {
        "filledBy": [{"podUID": uid, "nodeName": node} for uid, node in known.fillers.items()],
        "outliving": [
            {"podUID": one.pod_uid, "nodeName": one.node, "releaseTime": timestamp(one.until)}
            for one in known.outliving
        ],
    }


def _slot(resolved: Demand | Problem) -> list[dict[str, str]]:
    """One slot as it is held; what every slot has, one pod, is left out."""
    if isinstance(resolved, Problem):
        return []
    amounts = sorted((name, amount) for name, amount in resolved.vector.items() if name != keys.PODS)
    return [
        {"resource": name, "quantity": quantity.render(name, amount)}
        for name, amount in amounts[:MOST_RESOURCES]
    ]


def _unplaced(one: Unplaced) -> dict[str, Any]:
    shown: dict[str, Any] = {"count": one.count, "reason": one.reason}
    if one.resource:
        shown["resource"] = named(one.resource)
    if one.missing:
        shown["missing"] = quantity.render(one.resource, one.missing)
    if one.detail:
        shown["message"] = one.detail[:LONGEST_DETAIL]
    return shown


def _largest(holds: tuple[tuple[str, int], ...], mode: PlacementMode) -> list[dict[str, Any]]:
    """The largest holds; of a Pinned policy all that fit, because a restart places them there again."""
    ordered = sorted(holds, key=lambda hold: (-hold[1], hold[0]))
    most = MOST_PINNED if mode is PlacementMode.PINNED else MOST_HOLDS
    return [{"nodeName": node, "slots": slots} for node, slots in ordered[:most]]


def selector_text(selector: Selector) -> str:
    """A selector as kubectl writes it: app=checkout,tier in (a,b)."""
    return ",".join(_requirement_text(one) for one in selector.requirements)


def _requirement_text(one: Requirement) -> str:
    if one.operator == "Exists":
        return one.key
    if one.operator == "DoesNotExist":
        return f"!{one.key}"
    if one.operator == "In" and len(one.values) == 1:
        return f"{one.key}={one.values[0]}"
    return f"{one.key} {one.operator.lower()} ({','.join(one.values)})"


_ANNOUNCED: Final = {
    keys.READY: Announced("False"),
    keys.HELD: Announced("False", "SlotsHeld"),
    keys.GUARDED: Announced("False", "Guarded"),
    keys.SLOTS_USABLE: Announced("False"),
    keys.OVERLAPPING: Announced("True"),
    keys.APPLIED: Announced("False"),
    keys.VERIFIED: Announced("False"),
}
_ASKED_FOR: Final = frozenset({"Suspended", "ObserveMode"})


def notices(earlier: Mapping[str, Any], status: Mapping[str, Any]) -> list[Notice]:
    """The events for a change of a policy's status."""
    return changes(earlier, status, _ANNOUNCED, _ASKED_FOR)
