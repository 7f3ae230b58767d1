"""RUN/network.json: what the agent made of its node's network, for `j10ce network status`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from adapters import atomic_file
from agent.network.standing import Standing, network_state
from qos.bandwidth import BITS, BytesPerSecond
from qos.cluster.network_state import LinkState, Obstacle, Technique
from qos.network.grants import bounds_of
from qos.network.minors import SHARED
from qos.network.wanted import Direction, PodTraffic
from qos.network.wanted import Standing as Granted

NAME: Final = "network.json"
LOCK: Final = "network.lock"
"""In the same folder: held while an agent shapes."""
_LARGEST: Final = 16 << 20
_NOTHING: Final = Granted(0, 0, 0)


class Bounded(msgspec.Struct, frozen=True, omit_defaults=True):
    """One direction of a pod, bits a second. granted: what of the floor it has; limit: None: none."""

    floor: int = 0
    granted: int = 0
    limit: int | None = None


class SeenPod(msgspec.Struct, frozen=True, rename="camel"):
    """A pod that is shaped. minor: of the class that its packets go to; own: whether it is its alone.

    interface: index of the host's end of its veth, 0 not known. problems: what is not kept.
    """

    namespace: str
    pod: str
    band: str
    minor: int
    own: bool
    interface: int
    egress: Bounded
    ingress: Bounded
    problems: tuple[str, ...] = ()


class SeenNetwork(msgspec.Struct, frozen=True, rename="camel"):
    """link: None: not known, link_problem says why; index, ifb: its interface, and the one that shapes what
    it receives, 0 none. floors, limits: why not all of them can be kept here, None: they can.
    """

    link: LinkState | None
    link_problem: str
    index: int
    ifb: int
    techniques: tuple[Technique, ...]
    floors: Obstacle | None
    limits: Obstacle | None
    contradictions: tuple[str, ...]
    pods: tuple[SeenPod, ...]


def seen_network(
    standing: Standing, floors: Obstacle | None, limits: Obstacle | None, names: Mapping[str, tuple[str, str]]
) -> SeenNetwork:
    """As it is now. floors, limits: why not all can be kept. names: namespace and name of pods, by uid."""
    state, link = network_state(standing, floors), standing.link
    return SeenNetwork(
        state.link,
        standing.link_problem,
        link.index if link else 0,
        link.ifb if link else 0,
        state.techniques,
        floors,
        limits,
        state.contradictions,
        tuple(sorted(_pods(standing, names), key=lambda one: (one.namespace, one.pod))),
    )


def write(run: Path, seen: SeenNetwork) -> None:
    """Write it as a whole. OSError."""
    atomic_file.write(run / NAME, msgspec.json.encode(seen))


def read(run: Path) -> SeenNetwork:
    """OSError: there is none; ValueError: it is not what an agent wrote; atomic_file.Untrusted."""
    return msgspec.json.decode(atomic_file.read(run / NAME, _LARGEST), type=SeenNetwork)


def _pods(standing: Standing, names: Mapping[str, tuple[str, str]]) -> Iterator[SeenPod]:
    last = standing.last
    for uid, pod in last.pods.items() if last else ():
        granted = last.wanted.standing.get(uid) if last else None
        problems = last.unkept.get(uid, ()) if last else ()
        has = granted or _NOTHING
        namespace, name = names.get(uid, ("", uid))
        egress, ingress = (
            _bounded(pod, direction, amount)
            for direction, amount in zip(Direction, (has.egress, has.ingress), strict=True)
        )
        yield SeenPod(
            namespace,
            name,
            pod.band.name,
            granted.minor if granted else SHARED[pod.band],
            granted is not None,
            pod.interface,
            egress,
            ingress,
            tuple(f"{'floor' if one.floor else 'limit'} (network): {one}" for one in problems),
        )


def _bounded(pod: PodTraffic, direction: Direction, granted: BytesPerSecond) -> Bounded:
    bounds = bounds_of(pod, direction)
    limit = None if bounds.limit is None else bounds.limit * BITS
    return Bounded(bounds.floor * BITS, granted * BITS, limit)
