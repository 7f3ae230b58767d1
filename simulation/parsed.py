"""The API server's bytes, decoded once for all players that read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import orjson

from adapters.kubernetes import decode
from qos.cluster.objects import Node, Pod

PIN_LABEL = "pin"
"""The one node a DaemonSet's pod may run on; upstream says it by node affinity."""
PREEMPTED = b"PreemptionByScheduler"


_MOST = 4_096
"""Objects kept: more than one history makes, so that those which it is shortened to find them."""


@lru_cache(maxsize=_MOST)
def pod(raw: bytes) -> Pod:
    """A pod."""
    return decode.pod(raw)


@lru_cache(maxsize=_MOST)
def node(raw: bytes) -> Node:
    """A node."""
    return decode.node(raw)


@lru_cache(maxsize=_MOST)
def conditions(raw: bytes) -> Sequence[Mapping[str, str]]:
    """A pod's conditions."""
    return tuple(orjson.loads(raw)["status"].get("conditions", ()))


@dataclass(frozen=True, slots=True)
class Wants:
    """What kube-scheduler reads of a pod beside its requests.

    `gated`: it has schedulingGates. `only`: the one node that it may run on, by required node affinity
    (matchFields metadata.name); "" any. `never`: it preempts nobody.
    """

    gated: bool = False
    only: str = ""
    never: bool = False


_PLAIN = Wants()


@lru_cache(maxsize=_MOST)
def wants(raw: bytes) -> Wants:
    """What a pod wants."""
    if b"schedulingGates" not in raw and b"preemptionPolicy" not in raw and b"matchFields" not in raw:
        return _PLAIN
    spec = orjson.loads(raw)["spec"]
    required = spec.get("affinity", {}).get("nodeAffinity", {})
    terms = required.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", ())
    names = [name for term in terms for field in term["matchFields"] for name in field["values"]]
    return Wants(
        bool(spec.get("schedulingGates")), next(iter(names), ""), spec.get("preemptionPolicy") == "Never"
    )
