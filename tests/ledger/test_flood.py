"""Owners crash in a flood while binds are slow: their slots are held again at once, and stay so."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import replace

import pytest

from ledger.decisions import Mode
from ledger.ledger import Ledger
from qos.cluster.objects import Pod
from tests.ledger.builders import demand, names, nodes, pod

NODES = 50
CPU = 16
SLOT = 4
OWNERS = 10
IN_FLIGHT = 14


class Flood:
    """kube-scheduler under a stream of pods of 1 CPU.

    It asks filter, assumes one of the answers by chance, and binds the pod when IN_FLIGHT later ones are on
    their way.
    """

    def __init__(self, mode: Mode, *, binds: bool, seed: int) -> None:
        self.ledger = Ledger(mode, cap_percent=100, binds=binds)
        self.binds = binds
        self.chance = random.Random(seed)
        self.free = dict.fromkeys(names(NODES), CPU * 1000)
        self.under_way: deque[tuple[Pod, str]] = deque()
        self.number = 0
        for node in nodes(NODES, CPU, memory=1_000):
            self.ledger.set_node(node)
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
        node = self.chance.choice(answer)
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

    def crash(self) -> None:
        """An owner is gone; a new one will come."""
        owner = self.owners.pop()
        self.free[owner.node_name] += SLOT * 1000
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
