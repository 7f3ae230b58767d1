"""Where slots may lie by topology spread constraints, in the checker's own arithmetic.

Written apart from ledger/ on purpose, and without its shortcuts: pods are put one after the other where
kube-scheduler's PodTopologySpread would let the next one go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from lab.occupancy import Occupancy
from lab.promises import Promise
from qos.cluster.objects import Node, NodePredicate, Spread
from qos.cluster.selectors import admits, matches


@dataclass(frozen=True, slots=True)
class Rule:
    """One required constraint: the domain of each node that counts, and the pods that each domain has."""

    spread: Spread
    domains: Mapping[str, str]
    pods: Mapping[str, int]

    def allows(self, name: str, more: Mapping[str, int]) -> bool:
        """Whether one more pod may go to a node beside `more`, new ones by domain."""
        if name not in self.domains:
            return self.spread.apart
        if self.spread.together:
            return self._joins(self.domains[name], more)
        counts = {domain: count + more.get(domain, 0) for domain, count in self.pods.items()}
        least = 0 if len(counts) < self.spread.min_domains else min(counts.values())
        return counts[self.domains[name]] + self.spread.itself - least <= self.spread.max_skew

    def _joins(self, domain: str, more: Mapping[str, int]) -> bool:
        """Whether a domain has one of the pods to which affinity is required, or may have the first."""
        counts = {place: count + more.get(place, 0) for place, count in self.pods.items()}
        return counts[domain] > 0 or (self.spread.itself and not any(counts.values()))


@dataclass(frozen=True, slots=True)
class Evenness:
    """All required constraints of a promise."""

    rules: tuple[Rule, ...]

    def place(self, room: Mapping[str, int], count: int) -> dict[str, int]:
        """Up to `count` pods, one after the other, each where all rules let it go: in the domain of the first
        rule that has fewest, on the node with least room. With one rule no other order places more.
        """
        left, placed = dict(room), Counter[str]()
        more = [Counter[str]() for _ in self.rules]
        for _ in range(count):
            name = self._next(left, more)
            if not name:
                break
            left[name] -= 1
            placed[name] += 1
            for rule, new in zip(self.rules, more, strict=True):
                new[rule.domains.get(name, "")] += rule.spread.itself
        return dict(placed)

    def _next(self, left: Mapping[str, int], more: list[Counter[str]]) -> str:
        first = self.rules[0]
        order = sorted(
            (
                first.pods.get(first.domains.get(name, ""), 0) + more[0][first.domains.get(name, "")],
                room,
                name,
            )
            for name, room in left.items()
            if room > 0
        )
        rules = list(zip(self.rules, more, strict=True))
        return next((name for *_, name in order if all(rule.allows(name, new) for rule, new in rules)), "")

    @property
    def exact(self) -> bool:
        """Whether `place` never places fewer than could be."""
        return len(self.rules) == 1 and not self.rules[0].spread.together


def evenness_of(promise: Promise, occupancy: Occupancy) -> Evenness | None:
    """A promise's required constraints as things are; None without one."""
    required = [spread for spread in promise.spread if spread.required]
    if not required:
        return None
    keys = {spread.key for spread in required if not spread.between_pods}
    rules = (_rule(promise, occupancy, one, {one.key} if one.between_pods else keys) for one in required)
    return Evenness(tuple(rules))


def _rule(promise: Promise, occupancy: Occupancy, spread: Spread, keys: Iterable[str]) -> Rule:
    nodes = [place.node for place in occupancy.places.values()]
    there = [n for n in nodes if all(key in n.labels for key in keys) and _counts(promise.where, spread, n)]
    domains = {node.name: node.labels[spread.key] for node in there}
    pods = dict.fromkeys(domains.values(), 0)
    for pod in occupancy.pods.values():
        domain = domains.get(pod.node_name)
        leaving = pod.deleting and not spread.between_pods
        if domain is None or pod.terminal or leaving or pod.namespace != promise.namespace:
            continue
        pods[domain] += matches(spread.selector, pod.labels)
    return Rule(spread, domains, pods)


def _counts(where: NodePredicate, spread: Spread, node: Node) -> bool:
    """nodeAffinityPolicy and nodeTaintsPolicy; neither looks at volumes."""
    where = replace(where, volumes=())
    untainted = replace(node, taints=(), unschedulable=False)
    if spread.honor_affinity and not admits(where, untainted):
        return False
    anywhere = NodePredicate(tolerations=where.tolerations)
    return not spread.honor_taints or admits(anywhere, node)
