"""The plan of an agent before this one, as far as the kernel still has it: each pod keeps its class. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from qos.bandwidth import BytesPerSecond
from qos.network.bands import TRICKLE
from qos.network.minors import FIRST
from qos.network.wanted import MAJOR, HtbTree, PodTraffic, Standing, Wanted, mapped

_MINOR: Final = 0xFFFF


@dataclass(frozen=True, slots=True)
class Left:
    """What an agent has left in the kernel. by_address, by_cgroup: as in Wanted.

    rates: interface with a tree of ours -> minor -> the class's rate, bytes a second.
    """

    by_address: Mapping[bytes, int]
    by_cgroup: Mapping[int, int]
    rates: Mapping[int, Mapping[int, BytesPerSecond]]


NOTHING_LEFT: Final = Left({}, {}, {})


def recovered(left: Left, pods: Iterable[PodTraffic], link: int) -> Wanted:
    """What plan() takes as the plan before. link: the interface of which classes' rates are egress floors.

    A class that several pods lead to is the first one's, by uid; a pod that leads to several has none.
    """
    rates = left.rates.get(link, {})
    standing: dict[str, Standing] = {}
    taken: set[int] = set()
    for pod in sorted(pods, key=lambda pod: pod.uid):
        minor = _minor(left, pod)
        if minor in taken or minor not in rates:
            continue
        taken.add(minor)
        floor = rates[minor] if rates[minor] > TRICKLE else 0
        standing[pod.uid] = Standing(minor, floor, 0)
    return Wanted(
        trees=tuple(HtbTree(interface, 0, ()) for interface in sorted(left.rates)), standing=standing
    )


def _minor(left: Left, pod: PodTraffic) -> int:
    """Of the pod's own class, 0: it has none."""
    ids = {left.by_address.get(mapped(address), 0) for address in pod.addresses}
    ids |= {left.by_cgroup.get(cgroup, 0) for cgroup in pod.cgroup_ids}
    ids -= {0}
    if len(ids) != 1:
        return 0
    class_id = ids.pop()
    minor = class_id & _MINOR
    return minor if class_id >> 16 == MAJOR and minor >= FIRST else 0
