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
