"""ElasticQuota, as it is read: scheduler-plugins' object, with Koordinator's labels and annotations. Pure.

Source: kubernetes-sigs/scheduler-plugins, apis/scheduling/v1alpha1; koordinator-sh/koordinator,
apis/extension/elastic_quota.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from qos import keys
from qos.cluster.objects import Resources

BUILT_IN: Final = frozenset({keys.ROOT_QUOTA, keys.SYSTEM_QUOTA, keys.DEFAULT_QUOTA})
BESIDE: Final = frozenset({keys.SYSTEM_QUOTA, keys.DEFAULT_QUOTA})
"""Quotas that take no part in the sharing: they may use up to their max, and the others share the rest."""


@dataclass(frozen=True, slots=True)
class ElasticQuota:
    """An ElasticQuota. Amounts in canonical units, not capped: they are sums over a cluster.

    `max`: what is not named has no limit here. `weight`: of each resource of max, its part in what is
    shared. `parent`: a quota's name, "" for none. `lends`: whether others may use what it leaves of its min.
    `tree`: "" is the tree of all nodes. `total`: of a root, what its tree has; None: not stated. `beside`:
    of a root, what its tree has is not taken from the default tree. `namespaces`: whose pods are its own.
    `forced`: sums of min are not checked. `turn_seconds`: after what time its pods take turns (quota.turns);
    0: they do not. `plain`: it has none of Koordinator's keys, so that it is for all
    pods of its namespace, as scheduler-plugins has it. `problems`: annotations that cannot be read, for
    people; they count as not there.
    """

    namespace: str
    name: str
    uid: str = ""
    created: float = 0.0
    generation: int = 0
    resource_version: str = ""
    min: Resources = field(default_factory=dict)
    max: Resources = field(default_factory=dict)
    weight: Resources = field(default_factory=dict)
    parent: str = ""
    is_parent: bool = False
    lends: bool = True
    tree: str = ""
    is_root: bool = False
    total: Resources | None = None
    beside: bool = False
    namespaces: tuple[str, ...] = ()
    forced: bool = False
    turn_seconds: int = 0
    plain: bool = False
    problems: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.namespace}/{self.name}"

    @property
    def order(self) -> tuple[str, str]:
        """By which equals are told apart: the name first, as Koordinator has it."""
        return self.name, self.namespace


def weights(stated: Mapping[str, int] | None, most: Resources) -> dict[str, int]:
    """The weight of each resource of max: as stated, else max; all of them max where none is more than 0."""
    if not stated or not any(stated.values()):
        return dict(most)
    return {name: stated.get(name, amount) for name, amount in most.items()}


def is_preemptible(labels: Mapping[str, str]) -> bool:
    """Whether a pod may be evicted for another pod's sake."""
    return labels.get(keys.QUOTA_PREEMPTIBLE_LABEL) != "false"
