"""The checker: were floors honoured, and no node over-committed, at any moment? Judged from the API server
alone.

It replays every change of pods, nodes, policies and what they follow from in the order of etcd's revisions,
and works out with its own arithmetic how many slots of each policy are *kept*: filled by a pod, or with a
place shown by a packing. A bind that makes the number fall below what it was is a broken floor when it is
also refuted, by a bound or by exhaustive search, that the slots could be placed otherwise. So a finding is a
proof; it never rests on a heuristic.

What it cannot see, and therefore does not report:
- A slot counts as promised once it was kept for `Terms.grace` seconds on end: until then the extender may
  not have heard of the policy, the node or the freed capacity.
- Decisions are taken in another order than they are written. A bind that would have broken no floor without
  the bypassing binds, the binds of higher priority and the losses of nodes of the last `grace` seconds is
  reported as undecided: it may have been decided before them. One that breaks it with all that given back
  is a broken floor, whatever else went on (lab/disturbances.py).
- Several policies of different shapes: packing is best fit and the refutation has a budget, so a floor
  broken where neither decides is counted as undecided, not as broken. With one shape (or disjoint nodes)
  both are exact.
- ownerFit Restricted is judged by the slot that floor and template come to, without what admission adds to a
  workload's pods, and so to its slots.
- Topology spread and pod affinity: a slot is kept only where pods may go one after the other
  (lab/evenness.py). With several required constraints on one policy, or pod affinity, a broken floor is
  proven by capacity alone. Node affinity beyond labels and names is not part of a promise (docs/limits.md).
- Volumes that keep pods to some nodes, each a pod of a StatefulSet: slots are matched with pods by name
  (lab/moorings.py). Together with topology spread only slots that are filled count as kept.
- qos.cluster.selectors and qos.cluster.requests are shared with the extender; a mistake there is made twice.

Not violations, but noted: binds of pods that go before the policy (higher priority, DaemonSet,
system-critical), that one of its spread constraints counts without being its owners, that bypass the extender
(nodeName at creation, another scheduler, mirror pods), binds while nobody guards (`Terms.unguarded`), and
nodes lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from lab.changes import Change
from lab.disturbances import Disturbances
from lab.packing import refuted
from lab.promises import Promise
from lab.situation import Situation
from lab.witness import Window, Witness
from qos.cluster.objects import DaemonSet, Node, Pod
from qos.cluster.selectors import matches


class Kind(Enum):
    """What a finding is. Only the first three are violations."""

    FLOOR_BROKEN = "FloorBroken"
    OVER_COMMITTED = "OverCommitted"
    MISUSED = "Misused"
    LAPSED = "Lapsed"
    BYPASSED = "Bypassed"
    OUTRANKED = "Outranked"
    NODE_LOST = "NodeLost"
    UNDECIDED = "Undecided"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that happened to floors or nodes at `at` (seconds since the epoch, when the watch showed
    it).
    """

    kind: Kind
    at: float
    message: str
    policy: str = ""
    pod: str = ""
    node: str = ""

    @property
    def violation(self) -> bool:
        """True when something was promised and not kept."""
        return self.kind in (Kind.FLOOR_BROKEN, Kind.OVER_COMMITTED, Kind.MISUSED)


@dataclass(frozen=True, slots=True)
class Terms:
    """By what floors are judged, beside what the changes show.

    `schedulers`: pods of others bypass. `unguarded`: spans (from, to) in which no extender guards, so that a
    floor that breaks has lapsed, as mode Guard has it. `grace`: see the module's text, seconds.
    """

    grace: float = 3.0
    cap_percent: int = 40
    schedulers: frozenset[str] = frozenset({"default-scheduler"})
    unguarded: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the checker found. `binds`: how many it judged; `kept`: slots of each policy kept at the end."""

    findings: tuple[Finding, ...]
    binds: int
    bypasses: int
    kept: Mapping[str, int] = field(default_factory=dict)

    @property
    def violations(self) -> tuple[Finding, ...]:
        """Floors broken, nodes over-committed, and Reservations given to whom they are not for."""
        return tuple(f for f in self.findings if f.violation)

    @property
    def undecided(self) -> int:
        """The number of binds of which nobody can say whether they broke a floor."""
        return len({(f.pod, f.at) for f in self.findings if f.kind is Kind.UNDECIDED})

    def count(self, kind: Kind) -> int:
        """How many findings of a kind."""
        return Counter(f.kind for f in self.findings)[kind]


def check(changes: Iterable[Change], terms: Terms | None = None) -> Verdict:
    """Judge all changes of a cluster; they may come in any order."""
    return replay(changes, terms or Terms()).verdict()


def replay(changes: Iterable[Change], terms: Terms) -> Checker:
    """The checker after all these changes; they may come in any order."""
    checker = Checker(terms)
    for change in sorted(changes, key=lambda c: c.revision):
        checker.feed(change)
    return checker


class Checker:
    """The replay. Feed it changes in the order of their revisions."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._situation = Situation()
        self._occupancy = self._situation.occupancy
        self._witness = Witness(self._occupancy, terms.cap_percent)
        self._windows: dict[str, Window] = {}
        self._findings: list[Finding] = []
        self._now = 0.0
        self._disturbances = Disturbances(self._occupancy, terms.grace)
        self._binds = 0
        self._bypasses = 0

    @property
    def findings(self) -> Sequence[Finding]:
        """What was found until now, in order; it grows."""
        return self._findings

    def verdict(self) -> Verdict:
        """What was found until now, and how much was judged."""
        return Verdict(tuple(self._findings), self._binds, self._bypasses, self._witness.kept())

    def promised(self, now: float) -> dict[str, int]:
        """Slots of each policy that were kept for `Terms.grace` until `now`: binds are judged by it."""
        return {key: window.least(now) for key, window in self._windows.items()}

    def feed(self, change: Change) -> None:
        """Take one change."""
        self._now = max(self._now, change.at)
        if self._situation.elapse(change.at):
            self._follow_promises()
            self._remember()
        match change.object:
            case Pod() as pod:
                self._pod(pod, change)
            case Node() as node:
                self._node(node, change)
            case DaemonSet():
                self._daemon_set(change)
            case _:
                self._source(change)
        self._follow_promises()
        self._remember()

    def _remember(self) -> None:
        kept = self._witness.kept()
        self._windows = {key: self._windows.get(key) or Window(self._terms.grace) for key in kept}
        for key, count in kept.items():
            self._windows[key].push(self._now, count)

    def _source(self, change: Change) -> None:
        self._situation.apply(change)
        self._follow_promises()

    def _follow_promises(self) -> None:
        promises = self._situation.promises()
        if promises != list(self._witness.promises):
            self._witness.rebuild(promises)

    def _daemon_set(self, change: Change) -> None:
        self._situation.apply(change)
        self._witness.nodes_changed(list(self._occupancy.places))

    def _node(self, node: Node, change: Change) -> None:
        known = self._occupancy.places.get(node.name)
        if known is not None and not change.deleted and known.node == node:
            return
        before = self._witness.kept()
        left = self._witness.left_on(node.name)
        self._situation.apply(change)
        self._witness.nodes_changed([node.name])
        self._disturbances.node_changed(self._now, node.name, left, self._witness.left_on(node.name))
        gone = "was lost" if change.deleted else "changed"
        for key, count in self._witness.kept().items():
            if count < before.get(key, 0):
                text = f"node {node.name} {gone}: {before[key]} slots kept before, {count} after"
                self._findings.append(Finding(Kind.NODE_LOST, self._now, text, key, node=node.name))

    def _pod(self, pod: Pod, change: Change) -> None:
        before = self._occupancy.pods.get(pod.uid)
        self._situation.apply(change)
        if (
            before is not None
            and not change.deleted
            and _takes(before) == _takes(self._occupancy.pods[pod.uid])
        ):
            return
        if before is None and not pod.node_name and not pod.nominated_node_name:
            return
        promised = self.promised(self._now)
        pod = self._occupancy.pods.get(pod.uid, pod)  # as it counts
        self._witness.pod_changed(pod, before, gone=change.deleted)
        newly = pod.node_name and not (before and before.node_name) and not change.deleted
        if newly and not change.listed:
            self._judge(pod, created_bound=before is None, promised=promised)

    def _judge(self, pod: Pod, *, created_bound: bool, promised: Mapping[str, int]) -> None:
        """A pod was bound: is its node over-committed, is a floor broken?"""
        self._binds += 1
        bypass = created_bound or pod.mirror or pod.scheduler_name not in self._terms.schedulers
        if bypass:
            self._bypasses += 1
        self._disturbances.pod_bound(self._now, pod, bypasses=bypass)
        self._judge_node(pod)
        if wrong := self._situation.reserved.misused(pod):
            text = f"pod {pod.key} was bound to {pod.node_name}: {wrong}"
            self._findings.append(Finding(Kind.MISUSED, self._now, text, "", pod.key, pod.node_name))
        kept = self._witness.kept()
        for promise in self._witness.promises:
            before, after = promised.get(promise.key, 0), kept[promise.key]
            if after < before:
                kind = self._kind(pod, promise, promised, bypass=bypass)
                text = (
                    f"pod {pod.key} was bound to {pod.node_name}: {before} slots kept before, {after} after"
                )
                self._findings.append(Finding(kind, self._now, text, promise.key, pod.key, pod.node_name))

    def _kind(self, pod: Pod, promise: Promise, promised: Mapping[str, int], *, bypass: bool) -> Kind:
        """What it is that a bind left fewer slots of a promise kept."""
        if bypass:
            return Kind.BYPASSED
        if promise.yields_to(pod) or self._gains(pod, promise, promised) or self._is_counted(pod, promise):
            return Kind.OUTRANKED
        if any(start <= self._now <= end for start, end in self._terms.unguarded):
            return Kind.LAPSED
        counts: dict[str, int] = {}
        for other in self._witness.promises:
            counts[other.key] = promised.get(other.key, 0)
            if other.key == promise.key:
                break
        free, wants = self._witness.free(cautious=False), self._witness.wants(counts)
        undisturbed = self._disturbances.without(self._now, promise, free, wants)
        return Kind.FLOOR_BROKEN if refuted(*undisturbed) else Kind.UNDECIDED

    def _gains(self, pod: Pod, promise: Promise, promised: Mapping[str, int]) -> bool:
        """Whether the pod fills a slot of a promise that comes first, which keeps one more with it."""
        owner, kept = self._witness.owner_of(pod), self._witness.kept()
        keys = [one.key for one in self._witness.promises]
        first = owner in keys and keys.index(owner) < keys.index(promise.key)
        return first and kept[owner] > promised.get(owner, 0)

    def _is_counted(self, pod: Pod, promise: Promise) -> bool:
        """Whether a pod changed where owners may go by being there, not by what it takes."""
        if pod.namespace != promise.namespace or self._witness.owner_of(pod) == promise.key:
            return False
        return any(one.required and matches(one.selector, pod.labels) for one in promise.spread)

    def _judge_node(self, pod: Pod) -> None:
        place = self._occupancy.places.get(pod.node_name)
        over = place.over_committed() if place is not None else {}
        excess = {name: amount for name, amount in over.items() if pod.requests.get(name, 0) > 0}
        if not excess:
            return
        bypassing = self._disturbances.bypassing(self._now, pod.node_name)
        beside = any(amount > bypassing.get(name, 0) for name, amount in excess.items())
        kind = Kind.OVER_COMMITTED if beside else Kind.BYPASSED
        what = ", ".join(f"{name} by {amount}" for name, amount in sorted(excess.items()))
        text = f"pod {pod.key} was bound to {pod.node_name}, which is over-committed: {what}"
        self._findings.append(Finding(kind, self._now, text, "", pod.key, pod.node_name))


def _takes(pod: Pod) -> tuple[object, ...]:
    """What of a pod matters to the account."""
    return pod.node_name, pod.nominated_node_name, pod.terminal, pod.deleting, pod.requests, pod.labels
