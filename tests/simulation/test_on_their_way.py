"""Owners on their way count as large as the holds that they go to, pods whose end nobody has heard of as
before; what costs no slot then is no fault.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from lab.checker import Terms
from ledger.decisions import DemandReport
from qos.cluster.objects import Demand, Node, Pod, Requirement, Selector
from qos.cluster.policy import Policy
from simulation.on_their_way import before_their_end, costs_a_slot, with_whole_holds

OWNERS = Selector((Requirement("app", "In", ("a",)),))


def _pod(name: str, cpu: int, on: str = "", app: str = "") -> Pod:
    requests = {"cpu": cpu, "memory": 1, "pods": 1}
    return Pod(name, "default", name, requests, labels={"app": app}, node_name=on)


def _cpus(*coming: Pod, holds: tuple[tuple[str, int], ...]) -> list[int]:
    demand = Demand("default/a", "default", OWNERS, {"cpu": 2000, "pods": 1}, 4)
    said = {demand.key: DemandReport(demand.key, 4, 0, 4, holds)}
    return [pod.requests["cpu"] for pod in with_whole_holds(coming, [demand], said)]


def test_who_goes_to_a_hold_is_as_large_as_that() -> None:
    assert _cpus(_pod("o", 500, "n0", "a"), holds=(("n0", 1),)) == [2000]
    assert _cpus(_pod("o", 2500, "n0", "a"), holds=(("n0", 1),)) == [2500]
    assert _cpus(_pod("o", 500, "n0", "a"), holds=(("n1", 4),)) == [500]
    assert _cpus(_pod("p", 500, "n0"), holds=(("n0", 1),)) == [500]


def test_no_more_owners_than_there_are_holds() -> None:
    owners = [_pod(f"o{i}", 500, "n0", "a") for i in range(3)]
    assert _cpus(*owners, holds=(("n0", 2),)) == [2000, 2000, 500]


@pytest.mark.parametrize(("cpu", "costs"), [(500, True), (2000, False)])
def test_a_pod_costs_no_slot_that_fits_only_beside_smaller_owners(cpu: int, costs: bool) -> None:
    """n0 has 4 CPUs. Two slots of 1.75 fit beside an owner of 0.5; one and the pod beside an owner of 2."""
    policy = Policy(
        "default/b", "default", "b", "b", 1, "1", 0.0, Selector((Requirement("app", "In", ("b",)),)),
        {"cpu": 1750}, count=2,
    )  # fmt: skip
    node = Node("n0", "n0", {"cpu": 4000, "memory": 1 << 30, "pods": 10})
    there = [node, policy, _pod("o", cpu, "n0", "a")]
    terms = Terms(grace=1.0, cap_percent=100)
    assert costs_a_slot(terms, there, _pod("p", 250, "n0"), "default/b") == costs
    assert costs_a_slot(terms, there, _pod("p", 500, "n0"), "default/b")


def test_only_those_of_whose_end_nobody_has_heard_are_as_before() -> None:
    ends = [replace(_pod(name, 500, "n0"), deleting=True) for name in ("p", "q")]
    assert [one.deleting for one in before_their_end(ends, {"p"})] == [False, True]
