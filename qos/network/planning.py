"""From links, configuration and pods to all that a node's network shall look like. Pure.

The same pods in any order make the same plan; the plan before is an argument, so that a pod keeps its class
and what it was granted while it lives. Who needs what:

- a NIC gets a tree once a pod has an egress floor or limit, or is in another band than L0. It keeps it: to
  replace a root qdisc drops what waits in it. Where its speed is not known, the tree keeps limits alone, and
  is there for them alone: no band goes before another, and each pod has its turn;
- a pod gets a class of its own for a floor or a limit, the same in all trees; others share their band's leaf;
- a limit of what a pod receives is a token bucket at its veth, and counts what comes from the same node, too;
- where limits can be policed, each has a policer beside: whoever cannot make the tree, or knows no link, has
  what the pod sends policed at its veth. Where the kernel has no buckets, what pods receive is policed, too;
- a floor of what a pod receives needs the tree at an IFB (Link.ifb). Without it nobody promises any: to limit
  all others so far that it would be free at any time would cost them what stands idle.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from qos.bandwidth import Band, BytesPerSecond
from qos.network.bands import DEFAULT, UNLIMITED, Configuration, Division, divide
from qos.network.grants import Grants, bounds_of, grant, in_order, on_host_network
from qos.network.minors import SHARED, allocate
from qos.network.tree import Member, banded, bucket
from qos.network.wanted import (
    Direction,
    HtbTree,
    Link,
    PodTraffic,
    Policer,
    Shortfall,
    Standing,
    Unkept,
    UnkeptLimit,
    Wanted,
    class_id,
    mapped,
)

NOTHING_YET: Final = Wanted()
_MOST_POLICED: Final = 1000
"""Pods, where there is no tree: what the policer's map holds (agent/network/bpf/sources/police.c)."""


def plan(
    links: Sequence[Link],
    pods: Iterable[PodTraffic],
    configuration: Configuration = DEFAULT,
    before: Wanted = NOTHING_YET,
) -> Wanted:
    """All of a node's network. `pods`: those with a sandbox or about to have one; each uid once."""
    return _Planning(links, in_order(pods), configuration, before).wanted()


@dataclass(frozen=True, slots=True)
class _Shaped:
    """One direction of one link that gets a tree: at which interface, divided how; known: its speed is."""

    interface: int
    division: Division
    known: bool


class _Planning:
    def __init__(
        self, links: Sequence[Link], pods: list[PodTraffic], configuration: Configuration, before: Wanted
    ) -> None:
        self._links = links
        self._pods = pods
        self._configuration = configuration
        self._before = before
        self._policed = configuration.policed
        self._shaped = {direction: list(self._divided(direction)) for direction in Direction}
        self._grants = {direction: self._granted(direction) for direction in Direction}
        self._minors, self._classless = self._given_classes()

    def wanted(self) -> Wanted:
        """The plan."""
        by_address, nameless = self._by_address()
        return Wanted(
            trees=tuple(sorted(self._trees(), key=lambda tree: tree.interface)),
            buckets=tuple(
                bucket(pod.interface, pod.ingress.limit)
                for pod in sorted(self._pods, key=lambda pod: pod.interface)
                if pod.interface and pod.ingress.limit is not None and Direction.INGRESS not in self._policed
            ),
            policers=tuple(sorted(self._policers(), key=lambda one: (one.class_id, one.direction.value))),
            by_address=by_address,
            by_cgroup={
                cgroup: class_id(self._minor(pod)) for pod in self._classified() for cgroup in pod.cgroup_ids
            },
            by_interface={
                pod.interface: class_id(self._minor(pod)) for pod in self._classified() if pod.interface
            },
            shortfalls=tuple(self._shortfalls(nameless)),
            unkept_limits=tuple(self._unkept_limits(nameless)),
            standing={uid: self._standing(uid, minor) for uid, minor in sorted(self._minors.items())},
        )

    # Which trees, of what size.

    def _divided(self, direction: Direction) -> Iterator[_Shaped]:
        """The links of this direction that get a tree."""
        standing = {tree.interface for tree in self._before.trees}
        needed = any(_needs_tree(pod, direction) for pod in self._pods)
        limited = any(bounds_of(pod, direction).limit is not None for pod in self._pods)
        for link in self._links:
            interface = link.index if direction is Direction.EGRESS else link.ifb
            speed = self._configuration.speed(link, direction)
            if interface and ((needed if speed else limited) or interface in standing):
                division = divide(self._configuration.bands(direction), speed or UNLIMITED)
                yield _Shaped(interface, division, known=bool(speed))

    def _granted(self, direction: Direction) -> Grants:
        why_none = None
        if direction is Direction.INGRESS and not all(link.ifb for link in self._links):
            why_none = Unkept.RECEIVING_NOT_SHAPED
        elif not all(self._configuration.speed(link, direction) for link in self._links):
            why_none = Unkept.LINK_UNKNOWN
        divisions = [one.division for one in self._shaped[direction]]
        return grant(self._pods, direction, divisions, why_none, self._before.standing)

    # Which pods have classes of their own.

    def _given_classes(self) -> tuple[dict[str, int], frozenset[str]]:
        """Minors by uid, and who should have one and gets none."""
        wanting = [pod for pod in self._pods if self._wants_class(pod)]
        stood = {uid: one.minor for uid, one in self._before.standing.items()}
        places = {band: self._places(band) for band in Band}
        admitted = []
        for pod in sorted(wanting, key=lambda pod: pod.uid not in stood):
            if places[pod.band] > 0:
                places[pod.band] -= 1
                admitted.append(pod.uid)
        minors = allocate(admitted, stood)
        return minors, frozenset(pod.uid for pod in wanting) - minors.keys()

    def _wants_class(self, pod: PodTraffic) -> bool:
        return any(
            (self._shaped[direction] and pod.uid in self._grants[direction].amounts)
            or (
                (self._shaped[direction] or direction in self._policed)
                and bounds_of(pod, direction).limit is not None
            )
            for direction in Direction
        )

    def _places(self, band: Band) -> int:
        shaped = [one for ones in self._shaped.values() for one in ones]
        return min((one.division.classes(band) for one in shaped), default=_MOST_POLICED)

    def _standing(self, uid: str, minor: int) -> Standing:
        egress, ingress = (self._amount(uid, direction) for direction in Direction)
        return Standing(minor, egress, ingress)

    def _amount(self, uid: str, direction: Direction) -> BytesPerSecond:
        return self._grants[direction].amounts.get(uid, 0) if uid in self._minors else 0

    # The trees themselves.

    def _trees(self) -> Iterator[HtbTree]:
        shared = dict.fromkeys(Band, 0)
        for pod in self._pods:
            shared[pod.band] += pod.uid not in self._minors
        leaf = self._configuration.leaf
        for direction, shaped in self._shaped.items():
            members = [self._member(pod, direction) for pod in self._pods if pod.uid in self._minors]
            for one in shaped:
                yield banded(one.interface, one.division, members, shared, leaf, limits_alone=not one.known)

    def _member(self, pod: PodTraffic, direction: Direction) -> Member:
        limit = bounds_of(pod, direction).limit
        return Member(self._minors[pod.uid], pod.band, self._amount(pod.uid, direction), limit)

    def _policers(self) -> Iterator[Policer]:
        for pod in self._pods:
            for direction in self._policed:
                limit = bounds_of(pod, direction).limit
                if limit is not None and pod.uid in self._minors and pod.interface:
                    yield Policer(pod.interface, class_id(self._minors[pod.uid]), direction, limit)

    # Whose packets go to which class.

    def _minor(self, pod: PodTraffic) -> int:
        return self._minors.get(pod.uid, SHARED[pod.band])

    def _classified(self) -> list[PodTraffic]:
        if any(self._shaped.values()):
            return self._pods
        return [pod for pod in self._pods if pod.uid in self._minors]

    def _by_address(self) -> tuple[Mapping[bytes, int], frozenset[str]]:
        """Class ids; and whose packets nobody can tell: an address is the first pod's that has it."""
        found: dict[bytes, int] = {}
        nameless = set()
        told = {pod.uid for pod in self._classified()}
        for pod in self._pods:
            fresh = [key for key in map(mapped, pod.addresses) if key not in found]
            found.update(dict.fromkeys(fresh, class_id(self._minor(pod)) if pod.uid in told else 0))
            if not fresh and not pod.cgroup_ids:
                nameless.add(pod.uid)
        return {key: one for key, one in found.items() if one}, frozenset(nameless)

    # What is not kept.

    def _shortfalls(self, nameless: frozenset[str]) -> Iterator[Shortfall]:
        for direction, grants in self._grants.items():
            lost = {
                pod.uid: Shortfall(pod.uid, direction, bounds_of(pod, direction).floor, why)
                for pod in self._pods
                if pod.uid in grants.amounts and (why := self._why_unclassified(pod.uid, nameless))
            }
            yield from lost.values()
            yield from (one for one in grants.shortfalls if one.uid not in lost)

    def _unkept_limits(self, nameless: frozenset[str]) -> Iterator[UnkeptLimit]:
        for pod in self._pods:
            unclassified = self._why_unclassified(pod.uid, nameless)
            able = self._links or (pod.interface and Direction.EGRESS in self._policed)
            why = unclassified if able else Unkept.LINK_UNKNOWN
            if pod.egress.limit is not None and why:
                yield UnkeptLimit(pod.uid, Direction.EGRESS, why)
            why = unclassified if Direction.INGRESS in self._policed else None
            if not pod.interface:
                why = Unkept.HOST_NETWORK if on_host_network(pod) else Unkept.NOT_IDENTIFIED
            if pod.ingress.limit is not None and why:
                yield UnkeptLimit(pod.uid, Direction.INGRESS, why)

    def _why_unclassified(self, uid: str, nameless: frozenset[str]) -> Unkept | None:
        if uid in self._classless:
            return Unkept.NO_CLASS_FREE
        return Unkept.NOT_IDENTIFIED if uid in nameless else None


def _needs_tree(pod: PodTraffic, direction: Direction) -> bool:
    bounds = bounds_of(pod, direction)
    return pod.band is not Band.L0 or bounds.floor > 0 or bounds.limit is not None
