"""What must be true: one small pure function each, over plain facts. Each returns what is wrong, in words.

The facts are the API server's objects and what the extender reports in public; the arithmetic is done here,
apart from the ledger's. What a mode does not promise (docs/limits.md) is said where it is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lab.budgets import Want, above, left_to
from ledger.decisions import DemandReport
from ledger.unplaced import FRAGMENTED
from qos.cluster.budget import Budget
from qos.cluster.objects import Demand, Node, PlacementMode, Pod, Resources, Spread
from qos.cluster.policy import Policy
from qos.cluster.selectors import admits, matches

SLOT_SECONDS = 6.0
"""So soon after there is room for it, a slot is held again."""
_NOTICED_SECONDS = 2.0
MOST_PREEMPTIONS = 4
"""A pod that preempted so often while nothing changed evicts in vain."""


@dataclass(frozen=True, slots=True)
class Facts:
    """One moment.

    `pods`: those that count against their node (bound, not ended), by node. `nominated`: requests of
    pending pods by the node they are nominated to; `expected`: those that DaemonSets still miss, by node.
    `demands` in the ledger's order, as policies ask, `reports` by key. `cap`: percent. `labels`: of
    namespaces.
    """

    nodes: Mapping[str, Node]
    pods: Mapping[str, Sequence[Pod]]
    demands: Sequence[Demand]
    reports: Mapping[str, DemandReport]
    owners: Mapping[str, str] = field(default_factory=dict)
    nominated: Mapping[str, Sequence[Resources]] = field(default_factory=dict)
    expected: Mapping[str, Sequence[Resources]] = field(default_factory=dict)
    cap: int = 100
    budgets: Sequence[Budget] = ()
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def policies(self) -> list[Demand]:
        """The demands that are no Reservations."""
        return [demand for demand in self.demands if demand.reserved is None]

    def free(self, node: str) -> dict[str, int]:
        """Allocatable less what pods ask for."""
        left = dict(self.nodes[node].allocatable)
        for pod in self.pods.get(node, ()):
            _take(left, pod.requests, 1)
        return left

    def held(self) -> dict[str, dict[str, int]]:
        """What is held on each node, all demands together."""
        total: dict[str, dict[str, int]] = {}
        for demand in self.demands:
            for node, count in self.reports[demand.key].holds:
                _take(total.setdefault(node, {}), demand.vector, -count)
        return total


def _take(left: dict[str, int], amounts: Resources, times: int) -> None:
    for name, amount in amounts.items():
        left[name] = left.get(name, 0) - amount * times


def holds_fit(facts: Facts) -> list[str]:
    """What is held on a node is free there, in every dimension that is held."""
    wrong = []
    for name, held in facts.held().items():
        free = facts.free(name) if name in facts.nodes else {}
        over = {r: (amount, free.get(r, 0)) for r, amount in held.items() if 0 < amount > free.get(r, 0)}
        wrong += [f"node {name}: {a} of {r} held, {b} free" for r, (a, b) in sorted(over.items())]
    return wrong


def holds_can_serve(facts: Facts) -> list[str]:
    """Whoever is to take a hold may run on its node: that is ready and admits the policy's pods."""
    wrong = []
    for demand in facts.demands:
        for name, _ in facts.reports[demand.key].holds:
            node = facts.nodes.get(name)
            if node is None or not node.ready or not admits(demand.where, node):
                wrong.append(f"{demand.key}: held on node {name}, where no pod may go")
    return wrong


def holds_are_even(facts: Facts) -> list[str]:
    """Owners that come one after the other, each to the zone that has fewest, can take every hold.

    So no zone with holds is further above the emptiest than its constraint allows. A Pinned hold stays.
    """
    wrong = []
    for demand in facts.demands:
        held = dict(facts.reports[demand.key].holds)
        for spread in demand.spread if demand.mode is not PlacementMode.PINNED else ():
            levels, there = _levels(facts, demand, spread)
            with_holds = {there[name] for name in held if name in there}
            high = max((levels[zone] for zone in with_holds), default=0)
            if with_holds and high - min(levels.values()) > spread.max_skew:
                wrong.append(f"{demand.key}: holds on {held}, by {spread.key} there are {levels}")
    return wrong


def _levels(facts: Facts, demand: Demand, spread: Spread) -> tuple[dict[str, int], dict[str, str]]:
    """Pods that a constraint counts, and holds, in each domain; and the domain of each node."""
    there = {n.name: n.labels[spread.key] for n in facts.nodes.values() if spread.key in n.labels}
    levels = dict.fromkeys(there.values(), 0)
    for name, domain in there.items():
        for pod in facts.pods.get(name, ()):
            levels[domain] += not pod.deleting and matches(spread.selector, pod.labels)
        levels[domain] += dict(facts.reports[demand.key].holds).get(name, 0)
    return levels, there


def accounts_add_up(facts: Facts) -> list[str]:
    """Every slot is filled, held, or reported as unplaced; and the holds add up to what is held."""
    wrong = []
    for demand in facts.demands:
        report = facts.reports[demand.key]
        if demand.reserved is None and report.desired != demand.desired:
            wrong.append(f"{demand.key}: {report.desired} desired, the policy says {demand.desired}")
        if report.filled + report.held + report.missing != report.desired:
            wrong.append(f"{demand.key}: {report.desired} desired, but {report}")
        if sum(count for _, count in report.holds) != report.held:
            wrong.append(f"{demand.key}: {report.held} held, but on nodes {report.holds}")
    return wrong


def as_asked(facts: Facts, policies: Iterable[Policy], now: float) -> list[str]:
    """As many slots are desired as the policies say, none of those that are suspended or came to their end.

    Left out: policies that follow a workload. `now`: seconds since the epoch; an end that came within the
    last two may not have been noticed.
    """
    wrong = []
    for policy in policies:
        report = facts.reports.get(policy.key)
        since = float("-inf") if policy.expires is None else now - policy.expires
        if report is None or policy.count is None or 0 <= since < _NOTICED_SECONDS:
            continue
        over = policy.suspend or since >= 0
        lasting = _lasting(policy)
        spare = policy.survives * (policy.max_slots_per_node or 0) if policy.count and lasting else 0
        said = 0 if over else lasting + spare
        if report.desired != said:
            wrong.append(f"{policy.key}: {report.desired} desired, it says {said}")
    return wrong


def _lasting(policy: Policy) -> int:
    """The slots that a policy's status leaves of those that it asks for, or adds to them."""
    slots, status = policy.count or 0, policy.status
    named = len(status.get("filledBy") or ()) + len(status.get("outliving") or ())
    if policy.once:
        gone = max(0, int(status.get("slots", {}).get("consumed", 0)) - named)
        return max(slots - gone, named)
    return max(slots, named) if policy.delay else slots


def within_budgets(facts: Facts) -> list[str]:
    """No more slots are filled and held than budgets allow, and what they withhold is said to be theirs."""
    wrong = above(
        ((_want(d), facts.reports[d.key].filled + facts.reports[d.key].held) for d in facts.policies),
        facts.budgets,
        facts.labels,
    )
    for demand, slots in _left_to(facts):
        said = sum(u.count for u in facts.reports[demand.key].unplaced if u.reason.startswith("Budget"))
        if said != demand.desired - slots:
            wrong.append(
                f"{demand.key}: budgets leave {slots} of {demand.desired}, {said} are said to be above"
            )
    return wrong


def _want(demand: Demand) -> Want:
    return Want(demand.namespace, demand.vector, demand.desired, demand.priority_class, demand.profile)


def _left_to(facts: Facts) -> Iterable[tuple[Demand, int]]:
    """What budgets leave to each policy."""
    slots = left_to(map(_want, facts.policies), facts.budgets, facts.labels)
    return zip(facts.policies, slots, strict=True)


def fillings(facts: Facts) -> list[str]:
    """As many slots are filled as owners are bound.

    Those on a node that is not ready may be counted out, those on one that is gone are.
    """
    wrong = []
    for demand in facts.policies:
        sure = possible = 0
        for name, pods in facts.pods.items():
            node, owners = facts.nodes.get(name), sum(facts.owners.get(pod.uid) == demand.key for pod in pods)
            sure += owners if node is not None and node.ready else 0
            possible += owners if node is not None else 0
        counted = facts.reports[demand.key].pods
        if not sure <= counted <= possible:
            wrong.append(f"{demand.key}: {counted} pods counted, {sure} to {possible} are bound")
    return wrong


def placeable(facts: Facts) -> dict[str, str]:
    """Demands of which a slot is unplaced although it fits beside all that is claimed, held and awaited.

    By key, with the node. Only what needs no move is looked for: so whoever is named could be held at once.
    """
    found = {}
    left = {demand.key: slots for demand, slots in _left_to(facts)}
    for demand in facts.demands:
        report = facts.reports[demand.key]
        slots = left.get(demand.key, report.desired)
        within = report.filled + report.held < slots
        if report.missing > 0 and within and _under_cap(facts, demand):
            node = next((n for n in sorted(facts.nodes) if _fits(facts, demand, n)), "")
            if node:
                found[demand.key] = node
    return found


def _fits(facts: Facts, demand: Demand, name: str) -> bool:
    node = facts.nodes[name]
    if not node.ready or not admits(demand.where, node):
        return False
    here = dict(facts.reports[demand.key].holds).get(name, 0)
    filled = sum(facts.owners.get(pod.uid) == demand.key for pod in facts.pods.get(name, ()))
    if demand.max_slots_per_node is not None and here + filled >= demand.max_slots_per_node:
        return False
    for spread in demand.spread:
        levels, there = _levels(facts, demand, spread)
        if name not in there or levels[there[name]] + 1 - min(levels.values()) > spread.max_skew:
            return False
    left = facts.free(name)
    for amounts in (*facts.nominated.get(name, ()), *facts.expected.get(name, ())):
        _take(left, amounts, 1)
    for other in facts.demands:
        _take(left, other.vector, dict(facts.reports[other.key].holds).get(name, 0))
    return all(left.get(r, 0) >= amount for r, amount in demand.vector.items())


def _under_cap(facts: Facts, demand: Demand) -> bool:
    """Whether the installation-wide cap leaves one more slot to the demand, later ones aside."""
    ready = [node.allocatable for node in facts.nodes.values() if node.ready]
    before = facts.demands[: [d.key for d in facts.demands].index(demand.key) + 1]
    for resource, amount in demand.vector.items():
        budget = sum(have.get(resource, 0) for have in ready) * facts.cap // 100
        used = sum(facts.reports[d.key].held * d.vector.get(resource, 0) for d in before)
        if used + amount > budget:
            return False
    return True


def same_totals(running: Mapping[str, float], again: Mapping[str, float]) -> list[str]:
    """After quiet, a ledger that is rebuilt from the API server's objects has the same account of pods.

    Left out: counters, and where and how many slots are held, which `no_fewer_slots` compares.
    """
    names = {name for name in (*running, *again) if not name.endswith("_total")}
    names -= {name for name in names if name.startswith("held")} | {"holds", "unplaced", "waiting"}
    return [
        f"{name}: {running.get(name, 0):g}, rebuilt {again.get(name, 0):g}"
        for name in sorted(names)
        if running.get(name, 0) != again.get(name, 0)
    ]


def no_fewer_slots(
    demands: Iterable[Demand], running: Mapping[str, DemandReport], again: Mapping[str, DemandReport]
) -> list[str]:
    """After quiet, as many slots of each demand are filled and held as a rebuilt ledger has.

    In the demands' order: more for an earlier one may cost a later one. A Pinned hold stays where it is, so
    it may be in the way. What is reported as Fragmented a packing from nothing may find a place for.
    """
    wrong = []
    for demand in demands:
        mine, other = running[demand.key], again[demand.key]
        there = demand.reserved is not None and demand.reserved.node
        if demand.mode is PlacementMode.PINNED and not (there and mine.held == other.held):
            break  # a Reservation that is Available is on its node in both
        if mine.filled + mine.held > other.filled + other.held:
            break
        if any(one.reason == FRAGMENTED for one in mine.unplaced):
            break
        if mine.filled + mine.held < other.filled + other.held:
            wrong.append(
                f"{demand.key}: {mine.filled} filled, {mine.held} held; rebuilt {other.filled}, {other.held}"
            )
            break
    return wrong


@dataclass(frozen=True, slots=True)
class Preemption:
    """Pods were evicted for the one of this name, last on `node`.

    `times`: how often others than before, since the last disturbance; `victims`: all their UIDs.
    """

    name: str
    priority: int
    node: str
    times: int = 1
    victims: frozenset[str] = frozenset()


def evictions_lead_to_binds(preemptions: Iterable[Preemption], bound: Mapping[str, bool]) -> list[str]:
    """A pod whose victims died runs. `bound`: whether it does, by name, for pods that are still there.

    The preemptions: those since the last disturbance whose room no pod of at least that priority took.
    """
    return [
        f"pod {one.name} preempted on {one.node} and does not run"
        for one in preemptions
        if not bound.get(one.name, True)
    ]
