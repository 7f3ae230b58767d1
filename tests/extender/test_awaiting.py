"""For which unplaced slots placeholders wait."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.awaiting import Awaiting
from extender.buffering import Account, lacks
from ledger.decisions import DemandReport, Unplaced
from qos.cluster.objects import Demand, NodePredicate
from tests.qos.builders import CHECKOUT, policy

POLICY = policy()
DEMAND = Demand(POLICY.key, POLICY.namespace, CHECKOUT, {"cpu": 2000, "pods": 1}, 9)
LACKS = DemandReport(
    POLICY.key, desired=9, filled=3, held=2, unplaced=(Unplaced(3, "Insufficient"), Unplaced(1, "CapReached"))
)


class Told:
    def __init__(self, *, standing: bool = True) -> None:
        self.times = 0
        self.awaiting = Awaiting(standing=lambda _policy: standing, changed=self.note)

    def note(self) -> None:
        self.times += 1

    def follow(self, demand: Demand, report: DemandReport | None, waiting: int = 0) -> dict[str, int]:
        self.awaiting.follow(
            [Account(POLICY, demand, report, waiting, 0 if report is None else lacks(report))]
        )
        return dict(self.awaiting.slots)


def test_one_waits_for_each_slot_that_lacks_room():
    told = Told()
    assert told.follow(DEMAND, LACKS) == {POLICY.key: 3}, "what a cap keeps back is not to be held anywhere"
    assert told.follow(DEMAND, None) == {POLICY.key: 3}, "the ledger is still about to place it"
    assert told.times == 1
    assert told.follow(DEMAND, LACKS, waiting=4) == {POLICY.key: 1}, (
        "an owner that waits takes its slot's room itself"
    )
    assert told.follow(DEMAND, replace(LACKS, unplaced=())) == {POLICY.key: 0}
    assert told.times == 3
    told.awaiting.follow([])
    assert not told.awaiting.slots, "the policy is gone"


def test_after_a_start_nobody_knows_how_many_are_to_wait():
    told = Told()
    assert told.awaiting.wanted(POLICY.key) is None
    assert told.follow(DEMAND, None) == {}
    assert told.awaiting.wanted(POLICY.key) is None, "the ledger is still about to place it"
    told.follow(DEMAND, LACKS)
    assert told.awaiting.wanted(POLICY.key) == 3
    told.follow(DEMAND, None)
    assert told.awaiting.wanted(POLICY.key) == 3
    told.follow(replace(DEMAND, max_slots_per_node=1), LACKS)
    assert told.awaiting.wanted(POLICY.key) == 0


@pytest.mark.parametrize(
    "demand",
    [
        replace(DEMAND, max_slots_per_node=1),
        replace(DEMAND, where=NodePredicate(affinity=())),
        replace(DEMAND, where=NodePredicate(volumes=((),))),
    ],
    ids=["its places depend on each other", "no node admits it", "no node has its volume"],
)
def test_none_waits_where_it_might_be_bound_to_a_wrong_node(demand):
    assert Told().follow(demand, LACKS) == {}


def test_the_other_keeper_has_none():
    assert Told(standing=False).follow(DEMAND, LACKS) == {}
