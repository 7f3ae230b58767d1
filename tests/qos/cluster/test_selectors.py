"""Label selectors, node affinity, taints and cordons, by upstream's rules."""

from __future__ import annotations

import pytest

from qos.cluster.objects import (
    Node,
    NodePredicate,
    NodeSelectorTerm,
    Requirement,
    Selector,
    Taint,
    Toleration,
)
from qos.cluster.selectors import admits, matches, tolerates

LABELS = {"app": "checkout", "tier": "3", "zone": ""}


@pytest.mark.parametrize(
    ("requirement", "expected"),
    [
        (Requirement("app", "In", ("checkout", "cart")), True),
        (Requirement("app", "In", ("cart",)), False),
        (Requirement("gone", "In", ("checkout",)), False),
        (Requirement("app", "NotIn", ("cart",)), True),
        (Requirement("app", "NotIn", ("checkout",)), False),
        (Requirement("gone", "NotIn", ("checkout",)), True),
        (Requirement("zone", "Exists"), True),
        (Requirement("gone", "Exists"), False),
        (Requirement("gone", "DoesNotExist"), True),
        (Requirement("app", "DoesNotExist"), False),
        (Requirement("tier", "Gt", ("2",)), True),
        (Requirement("tier", "Gt", ("3",)), False),
        (Requirement("tier", "Lt", ("4",)), True),
        (Requirement("app", "Gt", ("2",)), False),
        (Requirement("tier", "Gt", ("many",)), False),
        (Requirement("gone", "Lt", ("4",)), False),
        (Requirement("app", "Like", ("check*",)), False),
    ],
)
def test_operators(requirement: Requirement, expected: bool) -> None:
    assert matches(Selector((requirement,)), LABELS) is expected


def test_all_requirements_must_hold() -> None:
    both = Selector((Requirement("app", "In", ("checkout",)), Requirement("tier", "In", ("4",))))
    assert not matches(both, LABELS)


def test_an_empty_selector_matches_everything() -> None:
    assert matches(Selector(), {})


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        (Toleration(operator="Exists"), True),
        (Toleration("dedicated", "Exists"), True),
        (Toleration("dedicated", "Equal", "floors"), True),
        (Toleration("dedicated", "", "floors"), True),
        (Toleration("dedicated", "Equal", "others"), False),
        (Toleration("dedicated", "Exists", effect="NoExecute"), False),
        (Toleration("dedicated", "Exists", effect="NoSchedule"), True),
        (Toleration("other", "Exists"), False),
        (Toleration("", "Equal", ""), False),
        (Toleration("dedicated", "Gt", "1"), False),
    ],
)
def test_tolerations(toleration: Toleration, expected: bool) -> None:
    assert tolerates([toleration], Taint("dedicated", "floors", "NoSchedule")) is expected


def made(**others: object) -> Node:
    return Node("n1", "uid", {}, labels={"zone": "a", "gen": "5"}, **others)


def test_node_selector_needs_every_label() -> None:
    assert admits(NodePredicate(node_selector=(("zone", "a"), ("gen", "5"))), made())
    assert not admits(NodePredicate(node_selector=(("zone", "a"), ("gen", "6"))), made())


def test_affinity_needs_one_whole_term() -> None:
    zone_b = NodeSelectorTerm(labels=(Requirement("zone", "In", ("b",)),))
    young = NodeSelectorTerm(
        labels=(Requirement("gen", "Gt", ("4",)),), fields=(Requirement("metadata.name", "In", ("n1",)),)
    )
    assert admits(NodePredicate(affinity=(zone_b, young)), made())
    assert not admits(NodePredicate(affinity=(zone_b,)), made())


def test_affinity_without_terms_and_a_term_without_expressions_match_no_node() -> None:
    assert not admits(NodePredicate(affinity=()), made())
    assert not admits(NodePredicate(affinity=(NodeSelectorTerm(),)), made())


@pytest.mark.parametrize(
    ("effect", "expected"), [("NoSchedule", False), ("NoExecute", False), ("PreferNoSchedule", True)]
)
def test_only_hard_taints_count(effect: str, expected: bool) -> None:
    assert admits(NodePredicate(), made(taints=(Taint("k", "", effect),))) is expected


def test_a_cordon_is_a_taint_that_may_be_tolerated() -> None:
    assert not admits(NodePredicate(), made(unschedulable=True))
    cordon = Toleration("node.kubernetes.io/unschedulable", "Exists", effect="NoSchedule")
    assert admits(NodePredicate(tolerations=(cordon,)), made(unschedulable=True))


def test_readiness_is_not_judged() -> None:
    assert admits(NodePredicate(), made(ready=False))
