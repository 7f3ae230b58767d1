"""Reservations under whatever happens, in any order: none is used twice, and what is left of one is held."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from ledger.claims import ClaimState
from ledger.decisions import Mode
from qos.cluster.objects import Demand, NodePredicate, OwnerFit, Pod
from tests.ledger.builders import demand as policy
from tests.ledger.builders import node, pod
from tests.ledger.careful import Careful
from tests.ledger.recount import check_columns
from tests.ledger.test_reservations import owned, reservation, shared

NODES = ["n0", "n1", "n2"]
APPS = ("a", "b", "c")


def made(chance: random.Random, name: str) -> Demand:
    """A Reservation of any kind."""
    make = chance.choice((reservation, shared))
    others = {"owners": owned(chance.choice(APPS[:2])), "order": chance.choice((0, 0, 1))}
    fit = chance.choice(list(OwnerFit))
    return make(name, chance.choice(NODES), chance.randint(1, 6), fit=fit, **others)


class World:
    """The ledger, the pods as a watch has them, and what was decided of those that are under way."""

    def __init__(self, chance: random.Random, mode: Mode) -> None:
        self.chance = chance
        self.ledger = Careful(mode, cap_percent=100, reservations=True)
        self.pods: dict[str, Pod] = {}
        self.under_way: dict[str, tuple[str, str]] = {}
        self.reserved: dict[str, Demand] = {}
        self.users: dict[str, set[str]] = {}
        for name in NODES:
            self.ledger.set_node(node(name, 8))
        self.ledger.set_demand(policy("c", 2, cpu=2))
        self.moment = 0.0

    def step(self) -> None:
        self.moment += 2.0
        chance = self.chance
        match chance.randrange(9):
            case 0 | 1 | 2:
                self.arrive()
            case 3 | 4:
                self.settle()
            case 5 if self.pods:
                uid = chance.choice(sorted(self.pods))
                del self.pods[uid]
                self.under_way.pop(uid, None)
                self.ledger.remove_pod(uid)
            case 6:
                name = f"r{chance.randrange(4)}"
                if name not in self.reserved:
                    self.reserved[name] = made(chance, name)
                self.ledger.set_demand(self.reserved[name])
            case 7 if self.reserved:
                name = chance.choice(sorted(self.reserved))
                del self.reserved[name]
                self.users.pop(f"uid-{name}", None)
                self.ledger.remove_demand(f"/{name}")
            case 8:
                name = chance.choice(NODES)
                self.ledger.set_node(node(name, 8, ready=chance.random() < 0.7))

    def arrive(self) -> None:
        chance = self.chance
        name = f"p{self.moment:.0f}"
        must = NodePredicate() if chance.random() < 0.3 else None
        who = pod(name, cpu=chance.randint(1, 5), app=chance.choice(APPS), reservation_affinity=must)
        self.pods[name] = who
        if chance.random() < 0.5:
            self.ledger.set_pod(who)
        answer = self.ledger.filter(who, NODES, self.moment)
        if not answer.nodes or chance.random() < 0.2:
            return
        at = answer.nodes[0]
        decision = self.ledger.bind(who, at, self.moment)
        if decision.refusal:
            return
        used = decision.reservation.uid if decision.reservation else ""
        assert used or must is None or self.ledger.mode is not Mode.STRICT
        self.under_way[name] = at, used

    def settle(self) -> None:
        """A Binding under way happened, or did not."""
        if not self.under_way:
            return
        uid = self.chance.choice(sorted(self.under_way))
        at, used = self.under_way.pop(uid)
        if self.chance.random() < 0.3:
            self.ledger.release(uid)
            return
        self.ledger.bound(uid, at)
        self.pods[uid] = replace(self.pods[uid], node_name=at, reserved_by=used)
        self.ledger.set_pod(self.pods[uid])
        if used in {f"uid-{name}" for name in self.reserved}:
            self.users.setdefault(used, set()).add(uid)

    def check(self) -> None:
        report, state = self.ledger.report(), self.ledger._state
        check_columns(self.ledger)
        table = state.table
        ready = [row for row in table.index.values() if table.usable[row]]
        assert (state.holds.all[:, ready] <= table.free[:, ready]).all()
        claims = [claim for claim in state.claims.by_uid.values() if claim.owner >= 0]
        count = Counter(claim.owner for claim in claims)
        for name, record in self.reserved.items():
            number = state.demands.numbers[f"/{name}"]
            assert record.reserved is not None
            if record.reserved.shared is None:
                sure = [c for c in claims if c.owner == number and c.state is not ClaimState.BINDING]
                assert count[number] <= 1
                assert len(self.users.get(record.reserved.uid, ())) <= 1
                assert not (report[f"/{name}"].held and sure)
            else:
                taken = [c.requests for c in claims if c.owner == number]
                flights = [f.pod.requests for f in state.flights.by_uid.values() if f.shares == number]
                left = record.reserved.left([*taken, *flights])
                assert state.demands[number].vector == left
                if record.owner_fit is OwnerFit.RESTRICTED:
                    cpu = sum(one["cpu"] for one in taken)
                    assert cpu <= record.reserved.shared["cpu"]


@pytest.mark.parametrize("mode", [Mode.STRICT, Mode.GUARD])
@pytest.mark.parametrize("seed", range(8))
def test_whatever_happens(seed: int, mode: Mode) -> None:
    world = World(random.Random(seed), mode)
    for _ in range(40):
        world.step()
        world.check()
