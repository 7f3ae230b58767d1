"""Which pods their own volumes keep to some nodes, worked out by the checker itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from qos.cluster.policy import Workload
from qos.cluster.volumes import StorageClass, Volume, VolumeClaim

Moored: TypeAlias = Mapping[str, tuple[Volume | StorageClass, ...]]
"""Pods by name, and what keeps each to some nodes."""


def moored(
    workload: Workload,
    replicas: int,
    claims: Mapping[str, VolumeClaim],
    volumes: Mapping[str, Volume],
    classes: Iterable[StorageClass],
) -> Moored:
    """The pods of a StatefulSet whose own claims are, or will be, bound to what not all nodes can use."""
    found = {}
    default = next((one for one in classes if one.default), None)
    by_name = {one.name: one for one in classes}
    for number in range(workload.mounts.start, workload.mounts.start + replicas):
        pod = f"{workload.name}-{number}"
        keeping = []
        for template in workload.mounts.own:
            claim = claims.get(f"{workload.namespace}/{template.name}-{pod}")
            wanted = claim.class_name if claim else template.class_name
            kind = default if wanted is None else by_name.get(wanted)
            keeper = volumes.get(claim.volume) if claim and claim.volume else kind
            if keeper is not None and keeper.nodes is not None:
                keeping.append(keeper)
        if keeping:
            found[pod] = tuple(keeping)
    return found
