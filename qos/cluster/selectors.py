"""Label selectors, node affinity and taints, by upstream's rules.

Source: k8s.io/apimachinery labels.Requirement.Matches, component-helpers nodeaffinity, core/v1 Toleration.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from qos.cluster.objects import (
    Node,
    NodePredicate,
    NodeSelectorTerm,
    Requirement,
    Selector,
    Taint,
    Toleration,
)

_HARD_EFFECTS = ("NoSchedule", "NoExecute")
_UNSCHEDULABLE = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")


def _integer(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def _compares(requirement: Requirement, value: str) -> bool:
    """Gt and Lt: false unless both sides are integers, as upstream has it."""
    left = _integer(value)
    right = _integer(requirement.values[0]) if len(requirement.values) == 1 else None
    if left is None or right is None:
        return False
    return left > right if requirement.operator == "Gt" else left < right


def _holds(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return value is not None and _compares(requirement, value)
        case _:
            return False


def matches(selector: Selector, labels: Mapping[str, str]) -> bool:
    """True when every requirement holds.

    An empty selector matches everything; an unknown operator nothing.
    """
    for requirement in selector.requirements:  # noqa: SIM110 - a loop is faster, for every pod event
        if not _holds(requirement, labels):
            return False
    return True


def tolerates(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    """True when one of the tolerations accepts the taint."""
    return any(_accepts(toleration, taint) for toleration in tolerations)


def _accepts(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "Exists":
            return True
        case "" | "Equal":
            return bool(toleration.key) and toleration.value == taint.value
        case _:
            return False


def _term_matches(term: NodeSelectorTerm, node: Node) -> bool:
    """All expressions hold; a term without any matches no node."""
    if not term.labels and not term.fields:
        return False
    name = {"metadata.name": node.name}
    return all(_holds(r, node.labels) for r in term.labels) and all(_holds(r, name) for r in term.fields)


def meets(terms: Iterable[NodeSelectorTerm], node: Node) -> bool:
    """True when the node matches one of the terms."""
    return any(_term_matches(term, node) for term in terms)


def admits(where: NodePredicate, node: Node) -> bool:
    """True when a pod with these constraints may run on the node: node selector, required affinity, volumes,
    hard taints, cordon.

    Readiness is not judged here. A cordon is the taint node.kubernetes.io/unschedulable, which may be
    tolerated.
    """
    labels = node.labels
    if any(labels.get(key) != value for key, value in where.node_selector):
        return False
    if where.affinity is not None and not meets(where.affinity, node):
        return False
    if not all(meets(terms, node) for terms in where.volumes):
        return False
    if node.unschedulable and not tolerates(where.tolerations, _UNSCHEDULABLE):
        return False
    return all(tolerates(where.tolerations, t) for t in node.taints if t.effect in _HARD_EFFECTS)
