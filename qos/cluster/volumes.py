"""Where pods can use their volumes: which PersistentVolumeClaims they mount, and on which nodes those can be.

As kube-scheduler's plugin VolumeBinding has it: a bound claim's volume names its nodes by its node affinity.
A claim that is not bound keeps nobody to any nodes but those that its StorageClass allows. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from qos.cluster.objects import Anchor, Terms

_MOST_ORDINALS: Final = 1000
"""What replicas are beyond that, a policy holds slots for as if their claims were not bound."""


@dataclass(frozen=True, slots=True)
class VolumeClaim:
    """A PersistentVolumeClaim. `volume`: which one it is bound to, "" for none; `class_name`: its
    StorageClass, None: the default.
    """

    namespace: str
    name: str
    volume: str = ""
    class_name: str | None = None

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Volume:
    """A PersistentVolume: on which nodes it can be used, None: on any; `claim`: which one it is bound to,
    namespace/name, "" for none.
    """

    name: str
    nodes: Terms | None = None
    claim: str = ""


@dataclass(frozen=True, slots=True)
class StorageClass:
    """A StorageClass: on which nodes its volumes can be used (allowedTopologies), None: on any; `default`: of
    claims that name none.
    """

    name: str
    nodes: Terms | None = None
    default: bool = False


@dataclass(frozen=True, slots=True)
class ClaimTemplate:
    """An entry of a StatefulSet's volumeClaimTemplates: its name, and its StorageClass; None: the default."""

    name: str
    class_name: str | None = None


@dataclass(frozen=True, slots=True)
class Mounts:
    """What volumes a workload's pods mount: claims that all share, and claims of each pod's own; the pods'
    ordinals begin with `start`.
    """

    shared: tuple[str, ...] = ()
    own: tuple[ClaimTemplate, ...] = ()
    start: int = 0

    def __bool__(self) -> bool:
        return bool(self.shared or self.own)


NO_MOUNTS: Final = Mounts()


@dataclass(frozen=True, slots=True)
class Volumes:
    """What is known of volumes: claims and volumes, by key and name, and StorageClasses."""

    claims: dict[str, VolumeClaim] = field(default_factory=dict)
    volumes: dict[str, Volume] = field(default_factory=dict)
    classes: dict[str, StorageClass] = field(default_factory=dict)

    def shared(self, namespace: str, mounts: Mounts) -> tuple[tuple[Terms, ...], str]:
        """Where the claims that all pods mount can be used, and what is to be said of them."""
        places, told = self._places((f"{namespace}/{name}", None) for name in mounts.shared)
        return places, ", ".join(told)

    def anchors(self, namespace: str, workload: str, mounts: Mounts, replicas: int) -> tuple[Anchor, ...]:
        """The pods of a StatefulSet that their own claims keep to some nodes, by where those are."""
        found: dict[tuple[Terms, ...], dict[str, str]] = {}
        for ordinal in range(mounts.start, mounts.start + min(replicas, _MOST_ORDINALS) if mounts.own else 0):
            pod = f"{workload}-{ordinal}"
            claims = ((f"{namespace}/{one.name}-{pod}", one.class_name) for one in mounts.own)
            places, told = self._places(claims)
            if places:
                found.setdefault(places, {})[pod] = ", ".join(told)
        return tuple(Anchor(places, pods) for places, pods in found.items())

    def _places(self, claims: Iterable[tuple[str, str | None]]) -> tuple[tuple[Terms, ...], list[str]]:
        """Of claims by key, with the StorageClass of those that are not there yet: where they can be used,
        each place once, and what keeps them there.
        """
        places: dict[Terms, None] = {}
        told = []
        for key, class_name in claims:
            nodes, name = self._place(key, class_name)
            if nodes is not None:
                places[nodes] = None
                told.append(f"{name} ({_told(nodes)})")
        return tuple(places), told

    def _place(self, key: str, class_name: str | None) -> tuple[Terms | None, str]:
        claim = self.claims.get(key)
        if claim is not None and claim.volume:
            volume = self.volumes.get(claim.volume)
            return (volume.nodes if volume is not None else None), f"PersistentVolume {claim.volume}"
        one = self._class(claim.class_name if claim is not None else class_name)
        return (one.nodes, f"StorageClass {one.name}") if one is not None else (None, "")

    def _class(self, name: str | None) -> StorageClass | None:
        if name is None:
            return next((one for one in self.classes.values() if one.default), None)
        return self.classes.get(name)


def _told(terms: Terms) -> str:
    """Such as `topology.kubernetes.io/zone in a, b`."""
    stated = (
        " ".join([one.key, _OPERATORS.get(one.operator, one.operator), ", ".join(one.values)]).strip()
        for term in terms
        for one in (*term.labels, *term.fields)
    )
    return " or ".join(dict.fromkeys(stated)) or "on no node"


_OPERATORS: Final[Mapping[str, str]] = {"In": "in", "NotIn": "not in"}


NO_VOLUMES: Final = Volumes()
"""Nothing is known: all pods may run on any node."""
