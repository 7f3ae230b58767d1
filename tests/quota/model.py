"""Quotas counted anew from all there is, step by step as Koordinator's documents say it: slow and obvious."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import floor

from qos.cluster.quota import ElasticQuota

SYSTEM = ("koordinator-system-quota", "koordinator-default-quota")


@dataclass
class Quota:
    """One resource of a quota; `most` None: not limited. Pods: (asked, bound)."""

    rules: ElasticQuota
    most: int | None
    least: int
    weight: int
    lends: bool
    pods: list[tuple[int, bool]] = field(default_factory=list)
    held: int = 0
    children: list[Quota] = field(default_factory=list)
    runtime: int | None = None
    guaranteed: int = 0

    def used(self) -> int:
        return sum(asked for asked, bound in self.pods if bound) + sum(each.used() for each in self.children)

    def floors(self) -> int:
        return self.held + sum(each.floors() for each in self.children)

    def taken(self) -> int:
        return self.used() + self.floors()

    def limited(self, amount: int) -> int:
        return amount if self.most is None else min(amount, self.most)

    def kept(self) -> int:
        return self.limited(self.held + sum(each.kept() for each in self.children))

    def request(self) -> int:
        return self.held + sum(asked for asked, _ in self.pods) + sum(each.want() for each in self.children)

    def want(self) -> int:
        return self.limited(self.request() if self.lends else max(self.request(), self.least))


def of(rules: ElasticQuota, resource: str) -> Quota:
    beside = rules.name in SYSTEM
    most = None if beside else rules.max.get(resource)
    least = 0 if most is None else min(rules.min.get(resource, 0), most)
    return Quota(rules, most, least, rules.weight.get(resource, 0), rules.lends or most is None)


def distribute(total: int | None, parent: Sequence[Quota], beside: int) -> None:
    """Give each child its runtime, and so on beneath it. beside: what is taken without a share."""
    sharing = sorted((each for each in parent if each.most is not None), key=lambda each: each.rules.order)
    if total is None:
        total = sum(each.want() + max(each.least, each.kept()) for each in sharing)
    else:
        total = max(0, total - beside - sum(each.taken() for each in parent if each.most is None))
    guarantee(total, sharing)
    for each in sharing:
        each.runtime = min(each.want(), each.guaranteed) if each.lends else each.guaranteed
    spread(total - sum(each.runtime or 0 for each in sharing), sharing)
    for each in parent:
        own = sum(asked for asked, bound in each.pods if bound) + each.held
        distribute(each.runtime, each.children, own)


def guarantee(total: int, sharing: Sequence[Quota]) -> None:
    wanted = {id(each): max(each.least, each.kept()) for each in sharing}
    kept = sum(each.kept() for each in sharing)
    for each in sharing:
        mine, rest = each.kept(), wanted[id(each)] - each.kept()
        if sum(wanted.values()) <= total:
            each.guaranteed = wanted[id(each)]
        elif kept >= total:
            each.guaranteed = floor(Fraction(mine * total, kept)) if kept else 0
        else:
            share = Fraction(total - kept, sum(wanted.values()) - kept)
            each.guaranteed = mine + floor(rest * share)


def spread(left: int, sharing: Sequence[Quota]) -> None:
    asking = [each for each in sharing if each.want() > each.guaranteed and each.weight > 0]
    while left > 0 and asking:
        whole = sum(each.weight for each in asking)
        exact = {id(each): Fraction(left * each.weight, whole) for each in asking}
        units = {id(each): floor(exact[id(each)]) for each in asking}
        spare = left - sum(units.values())
        for each in sorted(asking, key=lambda one: (-(exact[id(one)] % 1), one.rules.order))[:spare]:
            units[id(each)] += 1
        left = 0
        for each in asking:
            assert each.runtime is not None
            each.runtime += units[id(each)]
            left += max(0, each.runtime - each.want())
            each.runtime = min(each.runtime, each.want())
        asking = [each for each in asking if each.runtime is not None and each.runtime < each.want()]


def parents(quotas: Mapping[str, ElasticQuota]) -> dict[str, tuple[str, str]]:
    """Tree and parent's name of each quota, by name; names are unique here."""

    def ancestors(name: str) -> list[str]:
        found: list[str] = []
        at = quotas[name].parent
        while at in quotas and at not in found:
            found.append(at)
            at = quotas[at].parent
        return found

    def top(name: str) -> bool:
        return quotas[name].parent not in quotas or name in ancestors(name)

    def tree(name: str) -> str:
        one = quotas[name]
        if top(name):
            return one.tree
        return one.tree or tree(one.parent)

    return {
        name: (
            tree(name),
            "" if top(name) or tree(name) != tree(quotas[name].parent) else quotas[name].parent,
        )
        for name in quotas
    }
