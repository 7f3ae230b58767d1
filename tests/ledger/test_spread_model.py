"""Topology spread against a slow obvious account: holds lie where kube-scheduler will let owners go."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from qos.cluster.objects import Demand, Node, PlacementMode, Pod, Spread
from qos.cluster.selectors import matches
from qos.cluster.spreading import apart, together, with_keys
from tests.ledger.builders import demand, labelled, node
from tests.ledger.careful import Careful
from tests.ledger.test_against_model import (
    _SETTINGS,
    APPS,
    CPU,
    MEMORY,
    NODES,
    GuardMachine,
    ImpatientMachine,
    Machine,
)

ZONES = dict(zip(NODES, ("a", "a", "b", "c"), strict=True))
HOST, ZONE = "host", "zone"
APART, TOGETHER = -1, -2
"""In place of a least number of domains: anti-affinity, affinity."""


def spread_of(app: str, key: str, skew: int, minimum: int, counts: str) -> Spread:
    selector = labelled(counts)
    itself = matches(selector, {"app": app})
    if minimum == TOGETHER:
        return replace(together(key, selector), itself=itself)
    if minimum == APART:
        return replace(apart(key, selector), itself=itself, max_skew=int(itself))
    return Spread(key, skew, selector, min_domains=minimum, itself=itself)


class Evenness:
    """One constraint of one demand, counted anew. `levels`: by domain, pods that it counts and holds."""

    def __init__(self, machine: Machine, record: Demand, spread: Spread, held: dict[str, int]) -> None:
        nodes = machine.account.nodes.values()
        keys = [spread.key] if spread.between_pods else [one.key for one in record.spread]
        self.spread = spread
        self.domains = {n.name: n.labels[spread.key] for n in nodes if all(key in n.labels for key in keys)}
        self.pods = dict.fromkeys(self.domains.values(), 0)
        self.held = dict.fromkeys(self.domains.values(), 0)
        for who, on in machine.account.claims.values():
            if on in self.domains and matches(spread.selector, who.labels):
                self.pods[self.domains[on]] += 1
        for name, count in held.items():
            if name in self.domains:
                self.held[self.domains[name]] += count

    def levels(self) -> dict[str, int]:
        own = self.spread.itself
        return {domain: pods + own * self.held[domain] for domain, pods in self.pods.items()}

    def floor(self, levels: dict[str, int]) -> int:
        return 0 if len(levels) < self.spread.min_domains else min(levels.values(), default=0)

    def allows_pod(self, name: str) -> bool:
        """What kube-scheduler's filter says of one more pod."""
        if name not in self.domains:
            return self.spread.apart
        if self.spread.together:
            return self.pods[self.domains[name]] > 0 or (self.spread.itself and not any(self.pods.values()))
        more = self.pods[self.domains[name]] + self.spread.itself
        return more - self.floor(self.pods) <= self.spread.max_skew

    def allows_hold(self, name: str) -> bool:
        levels = self.levels()
        if name not in self.domains:
            return self.spread.apart
        if self.spread.together:
            begun = any(self.held.values()) and not self.held[self.domains[name]]
            return self.allows_pod(name) and not (begun and not any(self.pods.values()))
        return levels[self.domains[name]] + self.spread.itself - self.floor(levels) <= self.spread.max_skew

    def can_be_filled(self) -> bool:
        """Owners come one after the other, each to the lowest domain that has a hold: all get theirs."""
        if self.spread.together:
            there = [domain for domain, count in self.held.items() if count]
            if any(self.pods.values()):
                return all(self.pods[domain] for domain in there)
            return len(there) <= 1 and (self.spread.itself or not there)
        left, pods = dict(self.held), dict(self.pods)
        while any(left.values()):
            domain = min((d for d in left if left[d]), key=pods.__getitem__)
            if pods[domain] + self.spread.itself - self.floor(pods) > self.spread.max_skew:
                return False
            left[domain] -= 1
            pods[domain] += self.spread.itself
        return True


class SpreadMachine(Machine):
    """Zones and hosts; demands of which most are spread over them."""

    @rule(name=st.sampled_from(NODES), cpu=st.integers(2, 16), memory=st.integers(4, 20), ready=st.booleans())
    def set_node(self, name: str, cpu: int, memory: int, ready: bool) -> None:
        made = node(name, cpu, memory, pods=6, ready=ready, labels={HOST: name, ZONE: ZONES[name]})
        self.account.nodes[name] = made
        self.ledger.set_node(made)

    @rule(name=st.sampled_from(NODES))
    def lose_its_zone(self, name: str) -> None:
        if name in self.account.nodes:
            self._put(replace(self.account.nodes[name], labels={HOST: name}))

    def _put(self, made: Node) -> None:
        self.account.nodes[made.name] = made
        self.ledger.set_node(made)

    @rule(
        app=st.sampled_from(APPS),
        desired=st.integers(0, 5),
        slot=st.tuples(CPU, MEMORY),
        priority=st.sampled_from((0, 10)),
        mode=st.sampled_from((PlacementMode.FLOATING, PlacementMode.FLOATING, PlacementMode.PINNED)),
        most=st.sampled_from((None, None, 1, 2)),
        keys=st.sampled_from(((), (ZONE,), (ZONE,), (HOST,), (ZONE, HOST))),
        skew=st.integers(1, 2),
        minimum=st.sampled_from((1, 1, 3, APART, TOGETHER)),
        counts=st.sampled_from((None, None, None, *APPS)),
    )
    def set_demand(  # type: ignore[override]
        self,
        app: str,
        desired: int,
        slot: tuple[int, int],
        priority: int,
        mode: PlacementMode,
        most: int | None,
        keys: tuple[str, ...],
        skew: int,
        minimum: int,
        counts: str | None,
    ) -> None:
        made = demand(
            app,
            desired,
            *slot,
            priority=priority,
            mode=mode,
            max_slots_per_node=most,
            created=1.0 + APPS.index(app),
            where=with_keys(demand(app, 0).where, keys if minimum != APART else ()),
            spread=tuple(spread_of(app, key, skew, minimum, counts or app) for key in keys),
        )
        if made.key in self.account.demands or len(self.account.demands) < self.most_demands:
            self.account.demands[made.key] = made
            self.ledger.set_demand(made)

    def _evennesses(self, record: Demand, reports: dict | None = None) -> list[Evenness]:
        held = dict((reports or self.ledger.report())[record.key].holds)
        return [Evenness(self, record, spread, held) for spread in record.spread]

    def _in_tree(self, who: Pod, name: str) -> bool:
        """kube-scheduler shows an extender only the nodes that its own filters let pass."""
        owner = self.account.demands.get(self.account.owner(who))
        if not super()._in_tree(who, name):
            return False
        return owner is None or all(one.allows_pod(name) for one in self._evennesses(owner))

    def _fits_besides(self, record: Demand, name: str, reports: dict, later: set[str]) -> bool:
        labels = self.account.nodes[name].labels
        if any(spread.keyed and spread.key not in labels for spread in record.spread):
            return False
        if not super()._fits_besides(record, name, reports, later):
            return False
        return all(one.allows_hold(name) for one in self._evennesses(record, reports))

    @invariant()
    def owners_can_go_where_holds_are(self) -> None:
        reports = self.ledger.report()
        for key, record in self.account.demands.items():
            if record.mode is PlacementMode.FLOATING:
                for one in self._evennesses(record, reports):
                    assert one.can_be_filled(), (key, one.pods, one.held)

    @invariant()
    def what_is_kept_out_is_said(self) -> None:
        for key, report in self.ledger.report().items():
            for entry in report.unplaced:
                if entry.reason == "Spread":
                    assert any(one.key in entry.detail for one in self.account.demands[key].spread)


class GuardSpreadMachine(GuardMachine, SpreadMachine):
    """The same in Guard mode."""


class ImpatientSpreadMachine(ImpatientMachine, SpreadMachine):
    """One demand is looked at in each call: that ends in a right state, too."""


class OneSpreadDemandMachine(SpreadMachine):
    """One shape: as many slots are held as the best of all distributions has."""

    most_demands = 1
    cap = 100

    @invariant()
    def as_many_are_held_as_brute_force_places(self) -> None:
        for record in self.account.demands.values():
            report = self.ledger.report()[record.key]
            if self.ledger.gauges()["in_flight"] or len(record.spread) != 1 or record.needs is not None:
                continue
            if record.mode is PlacementMode.PINNED or record.spread[0].together:
                continue  # which zone the first goes to is chosen once
            assert report.held == self._best(record)

    def _best(self, record: Demand) -> int:
        wanted = max(0, record.desired - self.account.filled(record.key))
        there = [name for name in self.account.nodes if self.account.may_hold(record, name)]
        room = [self._room(record, name) for name in there]
        best = 0
        for counts in product(*(range(min(n, wanted) + 1) for n in room)):
            if best < sum(counts) <= wanted:
                one = Evenness(self, record, record.spread[0], {})
                for name, count in zip(there, counts, strict=True):
                    if count and name in one.domains:
                        one.held[one.domains[name]] += count
                best = sum(counts) if one.can_be_filled() else best
        return best

    def _room(self, record: Demand, name: str) -> int:
        labels = self.account.nodes[name].labels
        if any(spread.keyed and spread.key not in labels for spread in record.spread):
            return 0
        free, most = self.account.free(name), record.max_slots_per_node
        fit = max(0, min(free[d] // record.vector[d] for d in record.vector))
        return fit if most is None else max(0, min(fit, most - self.account.filled(record.key, name)))


def test_the_machines_ledger_is_the_real_one() -> None:
    assert SpreadMachine.make is Careful, "which only asks more of it"


TestStrict = SpreadMachine.TestCase
TestStrict.settings = _SETTINGS
TestGuard = GuardSpreadMachine.TestCase
TestGuard.settings = _SETTINGS
TestImpatient = ImpatientSpreadMachine.TestCase
TestImpatient.settings = _SETTINGS
TestOneShape = OneSpreadDemandMachine.TestCase
TestOneShape.settings = _SETTINGS
