"""kube-scheduler has heard that a node is back before the ledger has: what is unplaced comes first there."""

from __future__ import annotations

import pytest

from ledger.decisions import Mode
from qos.cluster.objects import Taint, Toleration
from tests.ledger.builders import demand, holds, ledger, node, pod

NOT_READY = Taint("node.kubernetes.io/not-ready", "", "NoSchedule")
ALL = (Toleration("", "Exists"),)
FOR_A_WHILE = (Toleration(NOT_READY.key, "Exists", "", "NoExecute"),)


def test_a_node_that_only_the_scheduler_knows_to_be_back_is_left_to_unplaced_slots() -> None:
    made = ledger(demand("a", 1, 6), node("n0", 8, taints=(NOT_READY,), ready=False))
    early = pod("early", 4)
    assert made.filter(early, ["n0"], 0.0, FOR_A_WHILE).nodes == []
    made.set_node(node("n0", 8))
    assert made.filter(early, ["n0"], 0.1, FOR_A_WHILE).nodes == []
    assert holds(made, "a") == {"n0": 1}
    assert made.filter(pod("small", 2), ["n0"], 0.2, FOR_A_WHILE).nodes == ["n0"]


def test_who_tolerates_the_taint_is_let_in() -> None:
    made = ledger(demand("a", 1, 6), node("n0", 8, taints=(NOT_READY,), ready=False))
    assert made.filter(pod("cni", 1), ["n0"], 0.0, ALL).nodes == ["n0"]


def test_a_cordon_counts_as_its_taint() -> None:
    made = ledger(demand("a", 1, 6), node("n0", 8, unschedulable=True))
    assert made.filter(pod("early", 4), ["n0"], 0.0, ()).nodes == []


@pytest.mark.parametrize(
    ("desired", "tolerations", "mode"), [(0, (), Mode.GUARD), (1, None, Mode.GUARD), (1, (), Mode.OBSERVE)]
)
def test_else_taints_are_left_to_the_scheduler(
    desired: int, tolerations: tuple[Toleration, ...] | None, mode: Mode
) -> None:
    made = ledger(demand("a", desired, 6), node("n0", 8, taints=(NOT_READY,), ready=False), mode=mode)
    assert made.filter(pod("early", 4), ["n0"], 0.0, tolerations).nodes == ["n0"]


def test_other_nodes_do_as_before() -> None:
    made = ledger(demand("a", 1, 6), node("n0", 8, taints=(NOT_READY,), ready=False), node("n1", 4))
    assert made.filter(pod("early", 4), ["n0", "n1"], 0.0, ()).nodes == ["n1"]
