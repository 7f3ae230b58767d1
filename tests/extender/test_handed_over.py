"""Which places owners get, by the ledger and by what stands there; and what becomes of those on their way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from adapters.loops import Changes
from extender.hand_over import BIND_SECONDS, HandOver
from extender.metrics import Metrics
from extender.standing import Gated, Standing
from extender.view import View
from ledger.decisions import Mode
from qos.cluster.objects import NodePredicate, Pod
from qos.cluster.placeholders import Placeholder
from tests.ledger.builders import demand, ledger, node, pod

POLICY = "default/a"


class There:
    """A node of four CPUs, of which two are used, and a policy's two slots of one. `bound`: how many of a's
    placeholders there are; the others stand by.
    """

    def __init__(self, *, bound: int = 2, policy: str = "a") -> None:
        self.now = 1.0
        slots = replace(demand(policy, 2), vector={"cpu": 1_000, "pods": 1})
        there = pod("there", 2, 20, node="n1")
        self.account = ledger(node("n1", 4), there, slots, mode=Mode.GUARD, answers=False)
        self.standing = Standing("holds", lambda: None, lambda: self.now)
        for number in range(2):
            self.place(f"p{number}", bound=number < bound)
        api: Any = None
        view = View(nodes={"n1": node("n1", 4)})
        self.giving = HandOver(
            api,
            self.account,
            self.standing,
            {},
            Metrics(),
            Changes(0.0),
            view,
            namespace="holds",
            clock=lambda: self.now,
        )

    def place(self, name: str, policy: str = POLICY, *, bound: bool = True) -> None:
        self.standing.put(Placeholder(name, name, policy, "form", "n1", bound=bound, nominated=not bound))

    def chosen(self, owner: Pod) -> bool:
        """Whether the owner gets a place."""
        idle = [one for one in self.standing.of(POLICY) if one.keeps]
        return self.giving._choose(Gated(owner, (), NodePredicate()), POLICY, idle) is not None

    def handed(self, owner: Pod) -> None:
        """It has got its place on n1."""
        assert self.chosen(owner)
        place = self.giving._handed
        place[owner.uid] = _handed(self.now)

    @property
    def under_way(self) -> bool:
        self.giving._look_who_is_bound()
        return self.giving.busy() == {"n1"}


def _handed(now: float) -> Any:
    from extender.hand_over import _Handed

    return _Handed("n1", now, gated=True)


OWNER = pod("a-1", 1, 1, app="a")


def test_an_owner_gets_the_place_of_one_that_stands() -> None:
    assert There().chosen(OWNER)


@pytest.mark.parametrize("stand", [False, True])
def test_the_place_of_one_that_stands_by_is_given_where_no_other_placeholder_stands(stand: bool) -> None:
    """The ledger would move another policy's holds for it: a plain scale-up evicted batch pods."""
    there = There(bound=0, policy="b")
    there.account.set_node(node("n2", 4))
    there.account.set_demand(replace(demand("a", 2, created=0.9), vector={"cpu": 1_000, "pods": 1}))
    there.account.tend()
    assert dict(there.account.report()["default/b"].holds) == {"n1": 2}
    for number in range(2 if stand else 0):
        there.place(f"q{number}", "default/b")
    assert there.chosen(OWNER) != stand


def test_no_place_is_given_where_what_the_owner_asks_for_beside_its_slot_is_used() -> None:
    """kube-scheduler counts memory, which the policy does not hold."""
    assert not There().chosen(pod("a-1", 1, 20, app="a"))


def test_no_place_is_given_where_the_owner_asks_for_what_the_node_does_not_offer() -> None:
    there = There()
    there.account.set_node(node("n2", 4, extra={"nvidia.com/gpu": 1}))
    assert not there.chosen(pod("a-1", 1, 1, app="a", extra={"nvidia.com/gpu": 1}))


def test_an_owner_for_which_kube_scheduler_evicts_on_its_node_is_on_its_way() -> None:
    """Given up, it was kept out by who stands by, and evicted somebody else."""
    there, refused = There(), replace(OWNER, unschedulable_since=1.0)
    there.account.set_pod(OWNER)
    there.handed(OWNER)
    there.account.set_pod(replace(refused, nominated_node_name="n1"))
    assert there.under_way
    there.now += BIND_SECONDS
    assert not there.under_way


def test_an_owner_that_is_refused_and_nominated_nowhere_is_given_up() -> None:
    there = There()
    there.account.set_pod(OWNER)
    there.handed(OWNER)
    there.account.set_pod(replace(OWNER, unschedulable_since=1.0))
    assert not there.under_way
