"""Owners crash in a flood while binds are slow: their slots are held again at once, and stay so."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import replace

import pytest

from ledger.decisions import Mode
from ledger.ledger import Ledger
from qos.cluster.objects import Pod
from tests.ledger.builders import demand, ledger, names, node, nodes, pod

NODES = 50
CPU = 16
SLOT = 4
OWNERS = 10
IN_FLIGHT = 14


class Flood:
    """kube-scheduler under a stream of pods of 1 CPU.

    It asks filter, assumes one of the answers by chance, and binds the pod when IN_FLIGHT later ones are on
    their way. `spreads`: it takes one of those with most left, as it does by default.
    """

    def __init__(self, mode: Mode, *, binds: bool, seed: int, spreads: bool = False) -> None:
        self.spreads = spreads
        self.ledger = Ledger(mode, cap_percent=100, binds=binds)
        self.binds = binds
        self.chance = random.Random(seed)
        self.free = dict.fromkeys(names(NODES), CPU * 1000)
        self.under_way: deque[tuple[Pod, str]] = deque()
        self.number = 0
        for one in nodes(NODES, CPU, memory=1_000):
            self.ledger.set_node(one)
        self.ledger.set_demand(demand("a", OWNERS, SLOT, priority=10))
        self.owners = [pod(f"o{i}", SLOT, app="a", node=f"n{i}") for i in range(OWNERS)]
        for owner in self.owners:
            self.ledger.set_pod(owner)
            self.free[owner.node_name] -= SLOT * 1000

    def arrive(self) -> bool:
        """The next pod is filtered and assumed; False when no node may take it."""
        self.number += 1
        who = pod(f"p{self.number}", 1)
        self.ledger.set_pod(who)
        fitting = [name for name, free in self.free.items() if free >= 1000]
        answer = self.ledger.filter(who, fitting, 0.0).nodes if fitting else []
        if not answer:
            self.ledger.remove_pod(who.uid)
            return False
        most = max(map(self.free.__getitem__, answer))
        node = self.chance.choice([name for name in answer if not self.spreads or self.free[name] == most])
        self.free[node] -= 1000
        self.under_way.append((who, node))
        if len(self.under_way) > IN_FLIGHT:
            self.land()
        return True

    def land(self) -> None:
        """The oldest pod under way is bound, and shown by the watch."""
        who, node = self.under_way.popleft()
        if self.binds and self.ledger.bind(who, node, 0.0).refusal:
            self.free[node] += 1000
            self.ledger.remove_pod(who.uid)
            return
        self.ledger.set_pod(replace(who, node_name=node))

    def crash(self, unheard: int = 0) -> None:
        """An owner is gone; a new one will come. kube-scheduler knows it so many pods before the ledger."""
        owner = self.owners.pop()
        self.free[owner.node_name] += SLOT * 1000
        for _ in range(unheard):
            self.arrive()
        self.ledger.remove_pod(owner.uid)

    def come_back(self) -> bool:
        """An owner that crashed is scheduled again, ahead of the flood."""
        self.number += 1
        who = pod(f"p{self.number}", SLOT, app="a", priority=0)
        self.ledger.set_pod(who)
        fitting = [name for name, free in self.free.items() if free >= SLOT * 1000]
        answer = self.ledger.filter(who, fitting, 0.0).nodes if fitting else []
        if not answer or (self.binds and self.ledger.bind(who, answer[0], 0.0).refusal):
            return False
        self.free[answer[0]] -= SLOT * 1000
        self.ledger.set_pod(replace(who, node_name=answer[0]))
        return True

    def missing(self) -> int:
        return self.ledger.report()["default/a"].missing


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("mode", "binds"), [(Mode.GUARD, True), (Mode.GUARD, False), (Mode.STRICT, True), (Mode.STRICT, False)]
)
@pytest.mark.parametrize("taken", [660, 684, 700])
def test_the_slot_of_an_owner_that_crashes_is_held_again_and_outlasts_the_flood(
    mode: Mode, binds: bool, seed: int, taken: int
) -> None:
    flood = Flood(mode, binds=binds, seed=seed)
    while sum(flood.free.values()) > (NODES * CPU - taken) * 1000:
        assert flood.arrive()
    assert len(flood.under_way) == IN_FLIGHT
    flood.crash()
    lost = 0
    while flood.arrive():
        lost += flood.missing() > 0
    while flood.under_way:
        flood.land()
        lost += flood.missing() > 0
    assert lost == 0
    assert flood.come_back()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("first", [650, 700, 725])
def test_a_slot_is_held_again_though_kube_scheduler_knew_first_that_its_owner_is_gone(
    first: int, seed: int
) -> None:
    """No two pods in flight share the owner's place with what was free beside it."""
    flood = Flood(Mode.GUARD, binds=True, seed=seed, spreads=True)
    for taken in range(first, first + 50, 10):
        while sum(flood.free.values()) > (NODES * CPU - taken) * 1000:
            assert flood.arrive()
        flood.crash(unheard=IN_FLIGHT // 2)
        assert flood.missing() == 0
    while flood.arrive():
        pass
    while flood.under_way:
        flood.land()
    assert flood.missing() == 0
    assert sum(flood.free.values()) == 5 * SLOT * 1000


def test_beside_an_owner_pods_go_where_all_that_are_in_flight_fit() -> None:
    made = ledger(node("full", 4), node("other", 4), mode=Mode.GUARD)
    made.set_demand(demand("a", 1, 2))
    for who in (pod("owner", 2, app="a", node="full"), pod("runs", 1, node="full")):
        made.set_pod(who)
    both = ["full", "other"]
    assert made.filter(pod("first", 1), both, 0.0).nodes == both
    assert made.filter(pod("second", 1), both, 0.0).nodes == ["other"]
    assert made.filter(pod("third", 1), ["full"], 0.0).nodes == ["full"], "none but by chance"
    assert made.filter(pod("fourth", 1), ["full"], 0.0).nodes == [], "the third certainly lands there"
    made.remove_pod("third")
    made.set_pod(pod("first", 1, node="other"))
    assert made.filter(pod("fourth", 1), ["full"], 0.0).nodes == ["full"]


@pytest.mark.parametrize(("mode", "binds"), [(Mode.GUARD, True), (Mode.GUARD, False), (Mode.STRICT, True)])
def test_owners_that_crash_one_after_another_all_come_back(mode: Mode, binds: bool) -> None:
    flood = Flood(mode, binds=binds, seed=7)
    while sum(flood.free.values()) > 100_000:
        flood.arrive()
    for _ in range(OWNERS):
        flood.crash()
        for _ in range(IN_FLIGHT // 2):
            flood.arrive()
        assert flood.missing() == 0
        assert flood.come_back()
