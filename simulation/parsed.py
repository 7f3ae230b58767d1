"""The API server's bytes, decoded once for all players that read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import orjson

from adapters.kubernetes import decode
from qos.cluster.objects import Node, Pod

PIN_LABEL = "pin"
"""The one node a DaemonSet's pod may run on; upstream says it by node affinity."""
PREEMPTED = b"PreemptionByScheduler"


@lru_cache(maxsize=32_768)
def pod(raw: bytes) -> Pod:
    """A pod."""
    return decode.pod(raw)


@lru_cache(maxsize=4_096)
def node(raw: bytes) -> Node:
    """A node."""
    return decode.node(raw)


@lru_cache(maxsize=32_768)
def conditions(raw: bytes) -> Sequence[Mapping[str, str]]:
    """A pod's conditions."""
    return tuple(orjson.loads(raw)["status"].get("conditions", ()))
