"""What topology spread constraints come to: nodes they admit, and whether pods count for their own. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from qos.cluster.objects import NodePredicate, NodeSelectorTerm, Requirement, Selector, Spread
from qos.cluster.selectors import matches

_NEVER_SO_MANY: Final = 1 << 30
"""So that skew is counted from zero."""


def with_keys(where: NodePredicate, keys: Iterable[str]) -> NodePredicate:
    """The placement, on nodes that have all of these labels: kube-scheduler refuses such pods others."""
    there = tuple(Requirement(key, "Exists") for key in dict.fromkeys(keys))
    if not there:
        return where
    if where.affinity is None:
        return replace(where, affinity=(NodeSelectorTerm(labels=there),))
    # A term without expressions matches no node, and must not begin to.
    terms = (term for term in where.affinity if term.labels or term.fields)
    return replace(where, affinity=tuple(replace(term, labels=(*term.labels, *there)) for term in terms))


def counting(spread: Iterable[Spread], labels: Mapping[str, str]) -> tuple[Spread, ...]:
    """The constraints of pods with these labels: whether each pod counts in its own domain."""
    return tuple(_counting(one, matches(one.selector, labels)) for one in spread)


def _counting(one: Spread, itself: bool) -> Spread:
    return replace(one, itself=itself, max_skew=int(itself) if one.apart else one.max_skew)


def apart(key: str, selector: Selector) -> Spread:
    """A required anti-affinity: a domain without any of the selected pods may have one pod, if such pods are
    among those, and else as many as fit.
    """
    return Spread(key, 1, selector, min_domains=_NEVER_SO_MANY, honor_affinity=False, apart=True)


def labels_of(selector: Selector) -> dict[str, str]:
    """The labels that all pods have which a selector matches, as far as it names their values."""
    exact = (one for one in selector.requirements if one.operator == "In" and len(one.values) == 1)
    return {one.key: one.values[0] for one in exact}


def together(key: str, selector: Selector) -> Spread:
    """A required affinity: only domains with one of the selected pods; if there is none, and such pods are
    among those, any one domain.
    """
    return Spread(key, _NEVER_SO_MANY, selector, honor_affinity=False, together=True)
